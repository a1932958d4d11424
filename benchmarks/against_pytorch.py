"""Tokens per second of one fourfold process against PyTorch eager, on the same model and data.

usage: against_pytorch.py FOURFOLD [--models 27m,gpt2-124m,llama-100m]
                          [--precisions fp32,fp32x3,bf16] [--steps N] [--rounds N]
                          [--tcmalloc LIBRARY]

The two are run in turn, --rounds times each; the median step time over all rounds counts (without
the first two steps of each run). Prints the loss at the end of the window beside the ratio. Run it
with the Python that has PyTorch. Single times on a shared machine mean little; the ratio does.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

import numpy as np

MODELS = {
    "27m": dict(family="gpt", layers=6, hidden=512, heads=8, vocab=8192, seq_len=256, batch=8),
    "gpt2-124m": dict(
        family="gpt", layers=12, hidden=768, heads=12, vocab=50257, seq_len=512, batch=2
    ),
    "llama-100m": dict(
        family="llama", layers=10, hidden=768, heads=12, kv_heads=4, ffn=2048, vocab=32000,
        seq_len=512, batch=2,
    ),
}
WARM_UP = 2


def complete(model):
    gpt = model["family"] == "gpt"
    spec = dict(model)
    spec.setdefault("kv_heads", spec["heads"])
    spec.setdefault("ffn", 4 * spec["hidden"])
    spec["bias"] = spec["tie_embeddings"] = gpt
    spec["norm"] = "layernorm" if gpt else "rmsnorm"
    spec["activation"] = "gelu" if gpt else "swiglu"
    spec["position"] = "learned" if gpt else "rotary"
    spec["lr"] = 6e-4
    return spec


def write_data(prefix, vocab, tokens):
    """Token ids by a power law, so that the loss has something to learn."""
    ids = (np.random.default_rng(0).zipf(1.3, tokens) % vocab).astype(np.uint16)
    ids.tofile(prefix + ".bin")
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2))
        file.write(struct.pack("<iqqq", tokens, 0, 0, 1))


def toml_of(spec, folder):
    keys = ["family", "layers", "hidden", "heads", "kv_heads", "ffn", "seq_len", "vocab"]
    keys += ["tie_embeddings"] + [k for k in ["rope_theta", "norm_eps", "qk_norm"] if k in spec]
    lines = ["[model]"] + [f"{k} = {json.dumps(spec[k])}" for k in keys] + ["dropout = 0.0"]
    if "moe" in spec:
        lines += ["[model.moe]"] + [f"{k} = {json.dumps(v)}" for k, v in spec["moe"].items()]
    lines += ["[train]", f"steps = {spec['steps']}", f"global_batch = {spec['batch']}"]
    lines += [f"micro_batch = {spec['batch']}", f"precision = \"{spec['precision']}\""]
    lines += ["[optimizer]", f"lr = {spec['lr']}", "[schedule]", 'name = "constant"']
    lines += ["[data]", f"train = {json.dumps(spec['data'])}", "[checkpoint]"]
    lines += spec.get("checkpoint", ['mode = "off"'])
    lines += ["[run]", f"dir = {json.dumps(folder + '/run')}"]
    return "\n".join(lines) + "\n"


def run(command, environment=None, seconds=None):
    """Lines of JSON that the command prints; subprocess.TimeoutExpired after so many seconds."""
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def prepare(spec, folder):
    """Writes tokens, run.toml for fourfold and spec.json for PyTorch."""
    spec["data"] = folder + "/tokens"
    write_data(spec["data"], spec["vocab"], spec["seq_len"] * spec["batch"] * 64 + 1)
    with open(folder + "/spec.json", "w", encoding="utf-8") as file:
        # PyTorch has no fp32x3: fp32 is what it stands for.
        json.dump({**spec, "precision": spec["precision"].removesuffix("x3")}, file)
    with open(folder + "/run.toml", "w", encoding="utf-8") as file:
        file.write(toml_of(spec, folder))


def beside(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def take_turns(sides, rounds, warm_up=WARM_UP):
    """Runs each side's (command, environment) in turn; seconds of steps and last loss, by side."""
    seconds, loss = {side: [] for side in sides}, {}
    for _ in range(rounds):
        for side, (command, environment) in sides.items():
            steps = [line for line in run(command, environment) if "step_seconds" in line]
            seconds[side] += [step["step_seconds"] for step in steps[warm_up:]]
            loss[side] = steps[-1]["loss"]
    return seconds, loss


def print_row(first_cells, tokens, seconds, loss):
    """Rates with half the distance of their quartiles; `tokens` of a step."""
    rate = {side: tokens / statistics.median(times) for side, times in seconds.items()}
    spread = {
        side: (np.percentile(times, 75) - np.percentile(times, 25)) / statistics.median(times)
        for side, times in seconds.items()
    }
    cells = [f"{rate[side]:.0f} (±{50 * spread[side]:.0f} %)" for side in ["pytorch", "fourfold"]]
    cells += [f"{rate['fourfold'] / rate['pytorch']:.2f}"]
    cells += [f"{loss['pytorch']:.3f}", f"{loss['fourfold']:.3f}"]
    print("| " + " | ".join([*first_cells, *cells]) + " |", flush=True)


def measure(arguments, name, precision, folder):
    spec = complete(MODELS[name])
    spec.update(steps=arguments.steps, precision=precision, threads=os.cpu_count())
    prepare(spec, folder)
    pytorch = [sys.executable, beside("pytorch_step.py"), folder + "/spec.json"]
    preload = {"LD_PRELOAD": arguments.tcmalloc} if arguments.tcmalloc else {}
    fourfold = [arguments.fourfold, "train", folder + "/run.toml", "--json"]
    sides = {"pytorch": (pytorch, preload), "fourfold": (fourfold, {})}
    seconds, loss = take_turns(sides, arguments.rounds)
    print_row([name, precision], spec["batch"] * spec["seq_len"], seconds, loss)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--models", default="27m,gpt2-124m,llama-100m")
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tcmalloc", default="", help="preloaded into PyTorch's process")
    arguments = parser.parse_args()
    if arguments.steps <= WARM_UP:
        parser.error(f"the first {WARM_UP} steps don't count: take more")
    print("| model | precision | PyTorch, tokens/s | fourfold | ratio | loss, PyTorch | fourfold |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.models.split(","):
        for precision in arguments.precisions.split(","):
            with tempfile.TemporaryDirectory() as folder:
                measure(arguments, name, precision, folder)


if __name__ == "__main__":
    main()
