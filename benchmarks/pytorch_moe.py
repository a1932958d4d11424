"""The PyTorch trainer of pytorch_step.py with mixtures of experts in place of MLPs.

usage: pytorch_moe.py SPEC.json   trains as pytorch_step.py does; the first line tells parameters
       pytorch_moe.py --check     compares each way below with the definition, token by token

Tokens are sorted by expert, so that those of one lie together. SPEC.way says how they meet weights:
  loop     one matmul after another, on weights of their own
  grouped  torch's grouped_mm on stacked weights
  padded   one batched matmul, the rows of each expert padded to those of the busiest
"""

import json
import sys

import torch
from pytorch_step import Mlp, Training, activate, make_dense, train
from torch import nn
from torch.nn import functional as F

# A graph for each of the layers and splits that torch.compile meets.
torch._dynamo.config.recompile_limit = 64


# On CPUs the operator takes fp32, but the compiler believes that it doesn't.
grouped_mm = torch.compiler.disable(F.grouped_mm)


def as_computed(x):
    """In autocast's type, where it would not cast by itself."""
    return x.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else x


class Router(nn.Module):
    """In fp32: softmax, top k, renormalised or not; balance loss over each sequence."""

    def __init__(self, spec):
        super().__init__()
        self.top_k = spec["moe"]["top_k"]
        self.renormalise = spec["moe"].get("renormalise", True)
        self.aux_coef = spec["moe"].get("aux_coef", 0.01)
        self.gate = nn.Linear(spec["hidden"], spec["moe"]["experts"], bias=False)

    def forward(self, x):
        """x [batch, seq, hidden] → weights and experts [batch·seq, top_k], balance loss."""
        with torch.autocast("cpu", enabled=False):
            scores = self.gate(x.float()).softmax(-1)
        weights, chosen = scores.topk(self.top_k, -1)
        if self.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        batch, seq, experts = scores.shape
        by_sequence = chosen.reshape(batch, -1)
        ones = torch.ones_like(by_sequence, dtype=torch.float32)
        counts = scores.new_zeros(batch, experts).scatter_add(1, by_sequence, ones)
        share = counts / (seq * self.top_k)
        loss = self.aux_coef * experts * (share * scores.mean(1)).sum(-1).mean()
        return weights.flatten(0, 1), chosen.flatten(0, 1), loss


class LoopExperts(nn.Module):
    def __init__(self, spec):
        super().__init__()
        moe = spec["moe"]
        self.experts = nn.ModuleList(Mlp(spec, moe["ffn"]) for _ in range(moe["experts"]))

    def forward(self, rows, counts):
        parts = rows.split(counts.tolist())
        return torch.cat([expert(part)[0] for expert, part in zip(self.experts, parts)])


class Stacked(nn.Module):
    """Weight [experts, out, in] and bias of as many linear layers."""

    def __init__(self, experts, inputs, outputs, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None


class GroupedExperts(nn.Module):
    def __init__(self, spec):
        super().__init__()
        hidden, experts, ffn = spec["hidden"], spec["moe"]["experts"], spec["moe"]["ffn"]
        self.gated = spec["activation"] == "swiglu"
        self.up = Stacked(experts, hidden, ffn * (2 if self.gated else 1), spec["bias"])
        self.down = Stacked(experts, ffn, hidden, spec["bias"])

    @staticmethod
    def expert_of_row(rows, counts):
        numbers = torch.arange(len(counts))
        return torch.repeat_interleave(numbers, counts, output_size=rows.shape[0])

    @staticmethod
    def product(rows, linear, ends, expert):
        weight = as_computed(linear.weight).transpose(1, 2)
        y = grouped_mm(rows, weight, offs=ends)
        if linear.bias is None:
            return y
        return y + linear.bias.to(y.dtype).index_select(0, expert)

    def forward(self, rows, counts):
        ends = counts.cumsum(0).to(torch.int32)
        expert = self.expert_of_row(rows, counts)
        up = self.product(rows, self.up, ends, expert)
        return self.product(activate(up, self.gated), self.down, ends, expert)


class PaddedExperts(GroupedExperts):
    @staticmethod
    def product_of_all(x, linear):
        weight = linear.weight.transpose(1, 2)
        return torch.bmm(x, weight) if linear.bias is None else torch.baddbmm(
            linear.bias.unsqueeze(1), x, weight
        )

    def forward(self, rows, counts):
        experts, most = len(counts), int(counts.max())
        expert = self.expert_of_row(rows, counts)
        begins = counts.cumsum(0) - counts
        place = torch.arange(rows.shape[0]) + (expert * most - begins.index_select(0, expert))
        padded = rows.new_zeros(experts * most, rows.shape[1]).index_copy(0, place, rows)
        up = self.product_of_all(padded.view(experts, most, -1), self.up)
        y = self.product_of_all(activate(up, self.gated), self.down)
        return y.flatten(0, 1).index_select(0, place)


WAYS = {"loop": LoopExperts, "grouped": GroupedExperts, "padded": PaddedExperts}


class Moe(nn.Module):
    def __init__(self, spec):
        super().__init__()
        self.router, self.experts = Router(spec), WAYS[spec["way"]](spec)

    def forward(self, x):
        weights, chosen, loss = self.router(x)
        top_k, experts = chosen.shape[1], self.router.gate.weight.shape[0]
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        token = order // top_k
        counts = torch.zeros(experts, dtype=torch.int64).scatter_add(
            0, chosen, torch.ones_like(chosen)
        )
        flat = as_computed(x.flatten(0, 1))
        y = self.experts(flat.index_select(0, token), counts)
        y = y * weights.flatten().index_select(0, order).unsqueeze(1).to(y.dtype)
        return torch.zeros_like(flat, dtype=y.dtype).index_add(0, token, y).view(x.shape), loss


def make_sparse(spec, block):
    every = spec["moe"].get("every", 1)
    return make_dense(spec, block) if (block + 1) % every else Moe(spec)


def of_expert(experts, number, x):
    """One expert's output for one token, by the definition."""
    if isinstance(experts, LoopExperts):
        up, down = experts.experts[number].up, experts.experts[number].down
        weights, biases = (up.weight, down.weight), (up.bias, down.bias)
    else:
        both = experts.up, experts.down
        weights = tuple(linear.weight[number] for linear in both)
        biases = tuple(None if linear.bias is None else linear.bias[number] for linear in both)
    gated = weights[0].shape[0] != weights[1].shape[1]
    return F.linear(activate(F.linear(x, weights[0], biases[0]), gated), weights[1], biases[1])


def by_definition(moe, x):
    """Output and balance loss of a layer, one token and one expert at a time."""
    router, outputs, loss = moe.router, torch.zeros_like(x), 0.0
    experts = router.gate.weight.shape[0]
    for b, sequence in enumerate(x):
        share, probability = torch.zeros(experts), torch.zeros(experts)
        for t, token in enumerate(sequence):
            logits = (router.gate.weight * token).sum(-1)
            scores = logits.exp() / logits.exp().sum()
            probability = probability + scores / len(sequence)
            best = sorted(range(experts), key=lambda e: -scores[e].item())[: router.top_k]
            total = sum(scores[e] for e in best) if router.renormalise else 1.0
            for e in best:
                share[e] += 1 / (len(sequence) * router.top_k)
                outputs[b, t] += scores[e] / total * of_expert(moe.experts, e, token)
        loss = loss + router.aux_coef * experts * (share * probability).sum() / len(x)
    return outputs, loss


def check():
    torch.manual_seed(1)
    moe_spec = {"experts": 6, "ffn": 16}
    for way in WAYS:
        for activation, bias, top_k, renormalise in [
            ("gelu", True, 2, True),
            ("gelu", True, 1, False),
            ("swiglu", False, 3, True),
        ]:
            spec = dict(hidden=32, activation=activation, bias=bias, way=way)
            moe = Moe(dict(spec, moe=dict(moe_spec, top_k=top_k, renormalise=renormalise)))
            for parameter in moe.parameters():
                nn.init.normal_(parameter, std=0.3)
            x, d_y = torch.randn(2, 9, 32, requires_grad=True), torch.randn(2, 9, 32)
            results = []
            for layer in [moe, lambda x, moe=moe: by_definition(moe, x)]:
                y, loss = layer(x)
                inputs = [x, *moe.parameters()]
                gradients = torch.autograd.grad((y * d_y).sum() + loss, inputs, allow_unused=True)
                zeros = [torch.zeros_like(i) if g is None else g for g, i in zip(gradients, inputs)]
                results.append([y, loss, *zeros])
            for ours, defined in zip(*results):
                torch.testing.assert_close(ours, defined, rtol=1e-4, atol=1e-5)


def main():
    if sys.argv[1] == "--check":
        check()
        return
    with open(sys.argv[1], encoding="utf-8") as file:
        training = Training(json.load(file), make_sparse)
    total = sum(parameter.numel() for parameter in training.model.parameters())
    print(json.dumps({"parameters": total}), flush=True)
    train(training)


if __name__ == "__main__":
    main()
