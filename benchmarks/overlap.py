"""What the overlap of communication with computation gains on a network of limited rate.

usage: overlap.py FOURFOLD [--grid 2x1x1x1] [--nodes 2] [--rate RATE] [--steps N] [--rounds N]
                  [--hidden N] [--layers N] [--seq N] [--batch N]

Every setting trains the same model under benchmarks/network.sh, one thread a rank, all in turn in
each round; medians of the steps' time over all rounds, without the first two of each run. Beside
them stand the computation alone (the same ranks on links that are not limited), the ratio to no
overlap, and what the setting's plan allows: the makespan of its tasks (`fourfold simulate step`) at
the times that they take without overlap, on micro-batches of a slice's size. Needs root.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np
from against_pytorch import write_data

HERE = pathlib.Path(__file__).resolve().parent
WARM_UP = 2
RUN_SECONDS = 600
NONE = {"all_reduce": False, "reduce_scatter": False, "all_gather": False, "data_reduce": False,
        "data_gather": False}
SETTINGS = {
    "none": NONE,
    "all-reduce behind dW": {**NONE, "all_reduce": True},
    "reduce-scatter behind backward": {**NONE, "reduce_scatter": True},
    "all-gather ahead": {**NONE, "all_gather": True},
    "over data, behind backward and forward": {**NONE, "data_reduce": True, "data_gather": True},
    "all of them": {key: True for key in NONE},
    "two slices alone": {**NONE, "slices": 2},
    "all, two slices": {**{key: True for key in NONE}, "slices": 2},
    "all, four slices": {**{key: True for key in NONE}, "slices": 4},
    "all, sequence parallel": {**{key: True for key in NONE}, "sequence_parallel": True},
    "all, two slices, sequence parallel": {**{key: True for key in NONE}, "slices": 2,
                                           "sequence_parallel": True},
}
FREE = "20gbit"  # No limit that this machine would feel.
TRACED = 4


def run_file(arguments, folder, overlap, parts=1):
    """With micro-batches of one of `parts`."""
    x, y, z, data = arguments.grid.split("x")
    lines = ["[model]", 'family = "gpt"', f"layers = {arguments.layers}",
             f"hidden = {arguments.hidden}", f"heads = {arguments.hidden // 64}",
             f"seq_len = {arguments.seq}", "vocab = 8192", "dropout = 0.0",
             "[parallel]", f"x = {x}", f"y = {y}", f"z = {z}", f"data = {data}",
             "[overlap]", *(f"{key} = {json.dumps(value)}" for key, value in overlap.items()),
             "[train]", f"steps = {arguments.steps}", f"global_batch = {arguments.batch}",
             f"micro_batch = {arguments.batch // (int(z) * int(data) * parts)}",
             'precision = "fp32"',
             "[data]", f'train = "{folder}/tokens"',
             "[checkpoint]", 'mode = "off"', "[log]", "report = false", "tensorboard = false"]
    path = pathlib.Path(folder) / "run.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def step_times(arguments, folder, overlap, rate):
    file = run_file(arguments, folder, overlap)
    return train(arguments, file, tempfile.mkdtemp(dir=folder), rate)[WARM_UP:]


def task_times(arguments, folder, overlap):
    """The folder of a run with timelines, without overlap, whose tasks are of the same sizes."""
    alike = {**NONE, "sequence_parallel": overlap.get("sequence_parallel", False)}
    file = run_file(arguments, folder, alike, overlap.get("slices", 1))
    run = tempfile.mkdtemp(dir=folder)
    train(arguments, file, run, arguments.rate, "--trace", TRACED)
    return run


def makespan(arguments, folder, overlap, times):
    command = [arguments.fourfold, "simulate", "step", run_file(arguments, folder, overlap),
               "--times", times, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)["seconds"]


def train(arguments, file, run, rate, *more):
    ranks = int(np.prod([int(n) for n in arguments.grid.split("x")]))
    command = [HERE / "network.sh", arguments.nodes, ranks // arguments.nodes, rate,
               pathlib.Path(arguments.fourfold).resolve(), "train", file, "--json",
               "--run-dir", run, *more]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          timeout=RUN_SECONDS, check=False)
    steps = [json.loads(line)["step_seconds"] for line in done.stdout.splitlines()
             if line.startswith("{") and "step_seconds" in line]
    if done.returncode != 0 or len(steps) != arguments.steps:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--grid", default="2x1x1x1")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--settings",
                        help="rows to measure beside the first, with commas: 1 is the second; all")
    arguments = parser.parse_args()
    names = list(SETTINGS)
    if arguments.settings:
        names = [names[n] for n in sorted({0, *map(int, arguments.settings.split(","))})]
    times = {name: [] for name in ["free", *names]}
    allowed, traced = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        write_data(f"{folder}/tokens", 8192, 200_000)
        for _ in range(arguments.rounds):
            times["free"] += step_times(arguments, folder, NONE, FREE)
            for name in names:
                times[name] += step_times(arguments, folder, SETTINGS[name], arguments.rate)
        for name in names:
            overlap = SETTINGS[name]
            alike = overlap.get("slices", 1), overlap.get("sequence_parallel", False)
            if alike not in traced:
                traced[alike] = task_times(arguments, folder, overlap)
            allowed[name] = makespan(arguments, folder, overlap, traced[alike])
    base = statistics.median(times["none"])
    print(f"grid {arguments.grid} on {arguments.nodes} nodes, links of {arguments.rate}, "
          f"{arguments.layers} layers of {arguments.hidden}, {arguments.batch} x {arguments.seq} "
          f"tokens a step\n")
    print("| overlap | ms a step | of none | its plan allows, ms | of that |")
    print("| --- | --- | --- | --- | --- |")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        label = "links without a limit, no overlap" if name == "free" else name
        cells = [label, f"{1000 * median:.0f}", f"{base / median:.2f}"]
        if name in allowed:
            cells += [f"{1000 * allowed[name]:.0f}", f"{median / allowed[name]:.2f}"]
        print("| " + " | ".join(cells + ["-"] * (5 - len(cells))) + " |")


if __name__ == "__main__":
    main()
