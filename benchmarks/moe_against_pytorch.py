"""Tokens per second of a mixture of experts, one fourfold process against PyTorch.

usage: moe_against_pytorch.py FOURFOLD [--models moe-6m,gpt-125m-8e,mixtral-small,qwen3-moe-small]
                              [--precisions fp32,bf16] [--steps N] [--rounds N] [--ways NAMES]
                              [--trial-steps N] [--trial-minutes N] [--tcmalloc LIBRARY]

PyTorch has several ways to multiply each expert's tokens with its weights (pytorch_moe.py), each
eager and compiled. Every one is tried first, --trial-steps steps long, and the fastest by median is
the one that counts; trials are printed to standard error. One that fails or takes longer than
--trial-minutes is left out. Then it and fourfold run in turn as in against_pytorch.py. The first
half of each run does not count, since compiled ways meet new numbers of tokens for some steps. The
layers are compared with the definition before, and the numbers of parameters with fourfold's.
The presets are fourfold's, the larger ones with shorter sequences.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

from against_pytorch import beside, complete, prepare, print_row, run, take_turns

MODELS = {
    "moe-6m": dict(
        family="gpt", layers=6, hidden=256, heads=8, ffn=1024, vocab=4096, seq_len=256, batch=8,
        moe=dict(experts=8, top_k=2, ffn=512),
    ),
    "gpt-125m-8e": dict(
        family="gpt", layers=12, hidden=768, heads=12, vocab=50304, seq_len=512, batch=2,
        moe=dict(experts=8, top_k=1, ffn=3072, every=2, renormalise=False),
    ),
    "mixtral-small": dict(
        family="llama", layers=12, hidden=512, heads=8, kv_heads=2, ffn=1792, vocab=32000,
        seq_len=512, batch=2, rope_theta=1e6, moe=dict(experts=8, top_k=2, ffn=1792),
    ),
    "qwen3-moe-small": dict(
        family="llama", layers=12, hidden=512, heads=8, kv_heads=2, ffn=1536, vocab=32000,
        seq_len=512, batch=2, rope_theta=1e6, norm_eps=1e-6, qk_norm="head",
        moe=dict(experts=32, top_k=4, ffn=192),
    ),
}  # fmt: skip
WAYS = ["loop", "grouped", "padded", "loop-compiled", "grouped-compiled", "padded-compiled"]


def pytorch_side(arguments, spec, way, folder):
    """(command, environment) of PyTorch's process; `folder` gets its files."""
    spec = dict(spec, way=way.split("-")[0], compile=way.endswith("-compiled"))
    os.makedirs(folder, exist_ok=True)
    prepare(spec, folder)
    preload = {"LD_PRELOAD": arguments.tcmalloc} if arguments.tcmalloc else {}
    return [sys.executable, beside("pytorch_moe.py"), folder + "/spec.json"], preload


def try_ways(arguments, spec, folder):
    """The fastest of PyTorch's ways and the number of the model's parameters."""
    median, parameters = {}, 0
    for way in arguments.ways:
        trial = dict(spec, steps=arguments.trial_steps)
        command, environment = pytorch_side(arguments, trial, way, f"{folder}/{way}")
        try:
            lines = run(command, environment, 60 * arguments.trial_minutes)
        except subprocess.TimeoutExpired:
            print(f"  {way}: took longer than {arguments.trial_minutes} minutes", file=sys.stderr)
            continue
        except SystemExit as reason:
            print(f"  {way}: {str(reason).splitlines()[-1]}", file=sys.stderr)
            continue
        parameters = lines[0]["parameters"]
        steps = [line["step_seconds"] for line in lines[1:]]
        median[way] = statistics.median(steps[len(steps) // 2 :])
        print(f"  {way}: {1e3 * median[way]:.0f} ms a step", file=sys.stderr)
    if not median:
        sys.exit("none of PyTorch's ways works")
    return min(median, key=median.get), parameters


def check_parameters(folder, parameters):
    """Fails where fourfold's run had another number of them."""
    with open(folder + "/run/log.txt", encoding="utf-8") as file:
        found = re.search(r"([\d,]+) parameters", file.read())
    told = int(found.group(1).replace(",", ""))
    if told != parameters:
        sys.exit(f"PyTorch's model has {parameters} parameters, fourfold's {told}")


def measure(arguments, name, precision, folder):
    spec = complete(MODELS[name])
    spec.update(steps=arguments.steps, precision=precision, threads=os.cpu_count())
    print(f"{name}, {precision}:", file=sys.stderr)
    way, parameters = try_ways(arguments, spec, folder)
    prepare(spec, folder)
    sides = {
        "pytorch": pytorch_side(arguments, spec, way, folder + "/pytorch"),
        "fourfold": ([arguments.fourfold, "train", folder + "/run.toml", "--json"], {}),
    }
    seconds, loss = take_turns(sides, arguments.rounds, arguments.steps // 2)
    check_parameters(folder, parameters)
    print_row([name, precision, way], spec["batch"] * spec["seq_len"], seconds, loss)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS), help="of PyTorch; the best counts")
    parser.add_argument("--trial-steps", type=int, default=10)
    parser.add_argument("--trial-minutes", type=float, default=6)
    parser.add_argument("--tcmalloc", default="", help="preloaded into PyTorch's process")
    arguments = parser.parse_args()
    arguments.ways = arguments.ways.split(",")
    for name in arguments.ways:
        if name not in WAYS:
            parser.error(f"no way {name}; there are {', '.join(WAYS)}")
    return arguments


def main():
    arguments = parse()
    run([sys.executable, beside("pytorch_moe.py"), "--check"])
    head = ["model", "precision", "PyTorch's best", "PyTorch, tokens/s", "fourfold", "ratio"]
    print("| " + " | ".join([*head, "loss, PyTorch", "fourfold"]) + " |")
    print("|" + " --- |" * (len(head) + 2))
    for name in arguments.models.split(","):
        for precision in arguments.precisions.split(","):
            with tempfile.TemporaryDirectory() as folder:
                measure(arguments, name, precision, folder)


if __name__ == "__main__":
    main()
