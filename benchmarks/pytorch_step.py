"""One PyTorch trainer of the benchmarks: the model that a fourfold run file describes, eager.

usage: pytorch_step.py SPEC.json
Reads the model, batch and token file of SPEC, trains its steps and prints one JSON object per step
with loss and step_seconds, as `fourfold train --json` does.
"""

import json
import math
import struct
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, spec):
        super().__init__()
        hidden, self.heads, self.kv_heads = spec["hidden"], spec["heads"], spec["kv_heads"]
        self.width = hidden // self.heads
        bias = spec["bias"]
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv_heads) * self.width, bias=bias)
        self.out = nn.Linear(hidden, hidden, bias=bias)
        norm = spec.get("qk_norm", "none")
        assert norm in ("none", "head"), norm
        eps = spec.get("norm_eps", 1e-5)
        self.q_norm = nn.RMSNorm(self.width, eps=eps) if norm == "head" else nn.Identity()
        self.k_norm = nn.RMSNorm(self.width, eps=eps) if norm == "head" else nn.Identity()
        self.rotary = spec["position"] == "rotary"
        if self.rotary:
            steps = torch.arange(0, self.width, 2) / self.width
            base = spec.get("rope_theta", 10000.0)
            angles = torch.outer(torch.arange(spec["seq_len"]), base**-steps)
            self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
            self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

    def turn(self, x):
        first, second = x.chunk(2, -1)
        turned = torch.cat([-second, first], -1)
        return (x * self.cos + turned * self.sin).to(x.dtype)

    def project(self, x):
        sizes = [self.heads * self.width, self.kv_heads * self.width, self.kv_heads * self.width]
        return self.qkv(x).split(sizes, -1)

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (
            part.view(batch, seq, -1, self.width).transpose(1, 2) for part in self.project(x)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary:
            q, k = self.turn(q), self.turn(k)
        grouped = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))


def activate(x, gated):
    if not gated:
        return F.gelu(x, approximate="tanh")
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


class Mlp(nn.Module):
    """Gives its output and what it adds to the loss."""

    def __init__(self, spec, ffn):
        super().__init__()
        self.gated = spec["activation"] == "swiglu"
        self.up = nn.Linear(spec["hidden"], ffn * (2 if self.gated else 1), bias=spec["bias"])
        self.down = nn.Linear(ffn, spec["hidden"], bias=spec["bias"])

    def forward(self, x):
        return self.down(activate(self.up(x), self.gated)), 0.0


def make_norm(spec):
    if spec["norm"] == "layernorm":
        return nn.LayerNorm(spec["hidden"], bias=spec["bias"])
    return nn.RMSNorm(spec["hidden"], eps=spec.get("norm_eps", 1e-5))


class Block(nn.Module):
    def __init__(self, spec, mlp):
        super().__init__()
        self.norm1, self.attention = make_norm(spec), Attention(spec)
        self.norm2, self.mlp = make_norm(spec), mlp

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y, loss = self.mlp(self.norm2(x))
        return x + y, loss


def make_dense(spec, _block):
    return Mlp(spec, spec["ffn"])


class Model(nn.Module):
    """Block i has make_mlp(spec, i). Gives cross-entropy and what the blocks add to the loss."""

    def __init__(self, spec, make_mlp=make_dense):
        super().__init__()
        self.tokens = nn.Embedding(spec["vocab"], spec["hidden"])
        learned = spec["position"] == "learned"
        self.positions = nn.Embedding(spec["seq_len"], spec["hidden"]) if learned else None
        self.blocks = nn.ModuleList(Block(spec, make_mlp(spec, i)) for i in range(spec["layers"]))
        self.norm = make_norm(spec)
        self.head = nn.Linear(spec["hidden"], spec["vocab"], bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            if name.endswith("bias") or parameter.dim() < 2:
                continue
            last = name.endswith(("out.weight", "down.weight"))
            std = 0.02 / math.sqrt(2 * spec["layers"]) if last else 0.02
            nn.init.normal_(parameter, std=std)
        if spec["tie_embeddings"]:
            self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        others = 0.0
        for block in self.blocks:
            x, loss = block(x)
            others = others + loss
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), others


def read_tokens(prefix):
    with open(prefix + ".idx", "rb") as file:
        code = struct.unpack_from("<B", file.read(18), 17)[0]
    return np.fromfile(prefix + ".bin", dtype=np.uint16 if code == 8 else np.int32)


class Training:
    """The model of SPEC, its optimizer and its data; steps are counted from 0."""

    def __init__(self, spec, make_mlp=make_dense):
        torch.manual_seed(1234)
        torch.set_num_threads(spec["threads"])
        self.spec = spec
        self.model = Model(spec, make_mlp)
        self.step_model = torch.compile(self.model) if spec.get("compile") else self.model
        self.autocast = spec["precision"] == "bf16"
        self.make_optimizer()
        self.tokens = read_tokens(spec["data"])
        windows = (len(self.tokens) - 1) // spec["seq_len"]
        self.order = np.random.default_rng(0).permutation(windows)

    def adamw(self, parameters):
        return torch.optim.AdamW(
            parameters, lr=self.spec["lr"], betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )

    def make_optimizer(self):
        self.optimizer = self.adamw(self.model.parameters())

    def windows_of(self, step):
        batch = self.spec["batch"]
        return self.order[step * batch : (step + 1) * batch]

    def forward_backward(self, step):
        seq = self.spec["seq_len"]
        starts = self.windows_of(step) * seq
        windows = np.stack([self.tokens[s : s + seq + 1].astype(np.int64) for s in starts])
        data = torch.from_numpy(windows)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss, others = self.step_model(data[:, :-1], data[:, 1:])
        (loss + others).backward()
        return loss

    def step(self, step, before_update=lambda: None):
        """Trains one step; gives its cross-entropy."""
        loss = self.forward_backward(step)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        before_update()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss


def train(training):
    for step in range(training.spec["steps"]):
        begin = time.perf_counter()
        loss = training.step(step)
        seconds = time.perf_counter() - begin
        line = {"step": step + 1, "loss": loss.item(), "step_seconds": seconds}
        print(json.dumps(line), flush=True)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        train(Training(json.load(file)))


if __name__ == "__main__":
    main()
