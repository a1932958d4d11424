"""Tokens per second of several ranks on this machine: fourfold's grids against PyTorch over gloo.

usage: ranks_against_pytorch.py FOURFOLD [--ranks 2] [--model 27m] [--precisions fp32,bf16]
                                [--grids 1x1x1x2,1x1x2x1,2x1x1x1] [--set K=V]...
                                [--modes ddp,fsdp2,tp] [--steps N] [--rounds N] [--minutes M]
                                [--tcmalloc LIBRARY]

The same model, global batch, data and optimizer on all sides; PyTorch's ranks are processes,
fourfold's threads of one. Each rank computes with max(1, cores / ranks) threads. All take turns in
each round; medians over all rounds, without the first steps of each run. Run it with the Python
that has PyTorch.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

from against_pytorch import MODELS, WARM_UP, beside, complete, prepare, run

RUN_SECONDS = 600


def grids_of(ranks):
    return [f"1x1x1x{ranks}", f"1x1x{ranks}x1", f"{ranks}x1x1x1"]


def sides_of(arguments, spec, folder):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    launch += [str(arguments.ranks), beside("pytorch_ranks.py"), folder + "/spec.json"]
    environment = {"OMP_NUM_THREADS": str(spec["threads"]), "GLOO_SOCKET_IFNAME": "lo"}
    if arguments.tcmalloc:
        environment["LD_PRELOAD"] = arguments.tcmalloc
    sides = {f"PyTorch {mode}": (launch + [mode], environment) for mode in arguments.modes}
    for grid in arguments.grids:
        x, y, z, data = grid.split("x")
        command = [arguments.fourfold, "train", folder + "/run.toml", "--json"]
        micro = spec["batch"] // (int(z) * int(data))
        cuts = [f"parallel.x={x}", f"parallel.y={y}", f"parallel.z={z}"]
        cuts += [f"parallel.data={data}", f"train.micro_batch={micro}"]
        for key in [*cuts, *arguments.set]:
            command += ["--set", key]
        sides[f"fourfold {grid}"] = (command, {})
    return sides


def measure(arguments, precision, folder):
    spec = complete(MODELS[arguments.model])
    threads = max(1, os.cpu_count() // arguments.ranks)
    spec.update(steps=arguments.steps, precision=precision, threads=threads)
    prepare(spec, folder)
    sides = sides_of(arguments, spec, folder)
    seconds, loss, begin = {side: [] for side in sides}, {}, time.monotonic()
    for turn in range(arguments.rounds):
        if time.monotonic() - begin > 60 * arguments.minutes:
            print(f"the time is over after {turn} rounds", file=sys.stderr)
            break
        for side, (command, environment) in sides.items():
            lines = run(command, environment, RUN_SECONDS)
            steps = [line for line in lines if "step_seconds" in line]
            seconds[side] += [step["step_seconds"] for step in steps[WARM_UP:]]
            loss[side] = steps[-1]["loss"]
    tokens = spec["batch"] * spec["seq_len"]
    rate = {side: tokens / statistics.median(times) for side, times in seconds.items()}
    best = max(rate, key=lambda side: rate[side] if side.startswith("fourfold") else 0)
    for side in sides:
        cells = [arguments.model, precision, side, f"{rate[side]:.0f}"]
        cells += [f"{rate[best] / rate[side]:.2f}", f"{loss[side]:.3f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="27m", choices=MODELS)
    parser.add_argument("--precisions", default="fp32,bf16")
    parser.add_argument("--grids", default="")
    parser.add_argument("--modes", default="ddp,fsdp2,tp")
    parser.add_argument("--set", action="append", default=[], help="a value of fourfold's run")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30, help="no round begins after that")
    parser.add_argument("--tcmalloc", default="", help="preloaded into PyTorch's processes")
    arguments = parser.parse_args()
    arguments.modes = [mode for mode in arguments.modes.split(",") if mode]
    arguments.grids = arguments.grids.split(",") if arguments.grids else grids_of(arguments.ranks)
    if arguments.steps <= WARM_UP:
        parser.error(f"the first {WARM_UP} steps don't count: take more")
    print(f"{arguments.ranks} ranks on {os.cpu_count()} cores\n")
    print("| model | precision | side | tokens/s | best of fourfold to it | loss |")
    print("| --- | --- | --- | --- | --- | --- |")
    for precision in arguments.precisions.split(","):
        with tempfile.TemporaryDirectory() as folder:
            measure(arguments, precision, folder)


if __name__ == "__main__":
    main()
