"""The PyTorch trainer of the benchmarks on several ranks, over gloo.

usage: python -m torch.distributed.run --standalone --nproc-per-node N \
         pytorch_ranks.py SPEC.json MODE

MODE is ddp (replicas), fsdp2 (fully_shard of each block) or tp (Megatron's tensor parallelism:
columns, then rows, vocabulary of embedding, head and loss cut). Rank 0 prints what pytorch_step.py
prints.
"""

import json
import math
import sys
import time

import torch
import torch.distributed as dist
from pytorch_step import Attention, Training
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


class Parallel(Training):
    """A rank's part of the training; the batch is cut over `sharers` ranks."""

    def __init__(self, spec, sharers):
        super().__init__(spec)
        self.ranks, self.sharers = dist.get_world_size(), sharers
        self.spec["batch"] = spec["batch"] // sharers
        self.own = dist.get_rank() if sharers > 1 else 0

    def windows_of(self, step):
        batch = self.spec["batch"]
        begin = (step * self.sharers + self.own) * batch
        return self.order[begin : begin + batch]

    def mean(self, loss):
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total / self.ranks


def replicas(spec):
    training = Parallel(spec, dist.get_world_size())
    training.step_model = DistributedDataParallel(training.model, gradient_as_bucket_view=True)
    return training


def sharded(spec):
    training = Parallel(spec, dist.get_world_size())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy()
    if spec["precision"] == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        training.autocast = False
    for block in training.model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(training.model, mesh=mesh, mp_policy=policy)
    training.make_optimizer()
    return training


class SplitAttention(Attention):
    """Queries, keys and values by products of their own, so that each can be cut by heads."""

    def __init__(self, spec):
        super().__init__(spec)
        hidden, kv = spec["hidden"], self.kv_heads * self.width
        del self.qkv
        self.q, self.k, self.v = (
            nn.Linear(hidden, width, bias=spec["bias"]) for width in (hidden, kv, kv)
        )
        for linear in (self.q, self.k, self.v):
            nn.init.normal_(linear.weight, std=0.02)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def project(self, x):
        return self.q(x), self.k(x), self.v(x)


class TensorParallel(Parallel):
    """Parameters are cut ones and whole ones, which no optimizer and no norm takes together."""

    def __init__(self, spec):
        if spec["activation"] == "swiglu":
            sys.exit("tp: no gated models")
        super().__init__(spec, 1)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for block in self.model.blocks:
            block.attention = SplitAttention(spec)
            plan = {f"attention.{part}": ColwiseParallel() for part in ("q", "k", "v")}
            plan |= {"attention.out": RowwiseParallel(), "mlp.up": ColwiseParallel()}
            parallelize_module(block, mesh, plan | {"mlp.down": RowwiseParallel()})
        vocabulary = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(
            self.model,
            mesh,
            {"tokens": RowwiseParallel(input_layouts=Replicate()), "head": vocabulary},
        )
        if spec["tie_embeddings"]:
            self.model.head.weight = self.model.tokens.weight
        parameters = list(self.model.parameters())
        self.cut = [p for p in parameters if isinstance(p, DTensor)]
        self.whole = [p for p in parameters if not isinstance(p, DTensor)]
        self.optimizers = [self.adamw(self.cut), self.adamw(self.whole)]

    def step(self, step, before_update=lambda: None):
        with loss_parallel():
            loss = self.forward_backward(step)
        norms = [nn.utils.get_total_norm([p.grad for p in part]) for part in (self.cut, self.whole)]
        norm = math.hypot(norms[0].full_tensor().item(), norms[1].item())
        for part in (self.cut, self.whole):
            nn.utils.clip_grads_with_norm_(part, 1.0, torch.tensor(norm))
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.full_tensor() if isinstance(loss, DTensor) else loss

    def mean(self, loss):
        return loss


MODES = {"ddp": replicas, "fsdp2": sharded, "tp": TensorParallel}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    dist.init_process_group("gloo")
    training = MODES[sys.argv[2]](spec)
    for step in range(spec["steps"]):
        begin = time.perf_counter()
        loss = training.step(step)
        seconds = time.perf_counter() - begin
        loss = training.mean(loss)
        if dist.get_rank() == 0:
            line = {"step": step + 1, "loss": loss.item(), "step_seconds": seconds}
            print(json.dumps(line), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
