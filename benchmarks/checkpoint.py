"""What checkpoints cost training: fourfold's and PyTorch's distributed checkpoint, same model.

usage: checkpoint.py FOURFOLD [--model 27m] [--steps 200] [--rounds 10] [--interval 2]
                     [--variants NAMES] [--folder FOLDER] [--shm FOLDER] [--minutes 75]
                     [--tcmalloc LIBRARY] [--raw FILE]

Every variant trains --steps steps in --rounds runs, all variants in turn in each round, and saves
after every --interval-th step; the off ones save nothing. Prints per variant: how long a save held
up the main thread, CPU time of its threads, and two slow-downs with their 95 % intervals (bootstrap
over pairs and over rounds):

  paired   the first half of an interval, from the start of its save on, against its second half.
           Fair only where a save is over in the first half: see "steps in flight".
  to off   time of all steps against the off run of the same round.

Times of steps are those between the lines that the trainers print, so nothing is left out. Run it
with the Python that has PyTorch. Everything it writes is removed again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
from against_pytorch import MODELS, complete, toml_of, write_data

# Variant: the lines of [checkpoint] of fourfold, or the mode of pytorch_checkpoint.py.
FOURFOLD = {
    "fourfold-off": ['mode = "off"'],
    "fourfold-blocking": ["async = false"],
    "fourfold-async": ["async = true"],
}
PYTORCH = {
    "pytorch-off": "off",
    "pytorch-sync": "sync",
    "pytorch-async": "async",
    "pytorch-staged": "staged",
}
KEEP_LATEST = 2
LEAST_WARM_UP = 6  # Steps in which the buffers of the first saves are made.
RUN_MINUTES = 20  # A run that takes longer hangs.


def state_bytes(spec):
    """Of the parameters, to 10 %: masters and two moments of fp32."""
    hidden, gated = spec["hidden"], spec["activation"] == "swiglu"
    attention = 2 * hidden * hidden * (1 + spec["kv_heads"] / spec["heads"])
    mlp = (3 if gated else 2) * hidden * spec["ffn"]
    tables = spec["vocab"] * (1 if spec["tie_embeddings"] else 2) + spec["seq_len"]
    return 12 * (spec["layers"] * (attention + mlp) + tables * hidden)


def check_room(arguments, spec):
    """One checkpoint more than are kept is on the disk while it is written, and one is spare."""
    size = state_bytes(spec)
    for folder, copies in [(arguments.folder, KEEP_LATEST + 2), (arguments.shm, 4)]:
        free = shutil.disk_usage(folder).free
        if free < copies * size:
            sys.exit(f"{folder} has {free / 1e9:.1f} GB free; {copies * size / 1e9:.1f} are needed")


def run_steps(command, environment):
    """(seconds of arrival, line) of each line of JSON that the command prints."""
    lines = []
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    ) as process:
        guard = threading.Timer(60 * RUN_MINUTES, process.kill)
        guard.start()
        try:
            for line in process.stdout:
                now = time.perf_counter()
                if line.startswith("{"):
                    lines.append((now, json.loads(line)))
            code = process.wait()
        finally:
            guard.cancel()
            process.kill()
        if code != 0:
            errors.seek(0)
            sys.exit(f"{' '.join(command)} failed with {code}:\n{errors.read()}")
    return lines


def run_variant(arguments, name, spec, data):
    """The run's lines: seconds of arrival and line of each step, and all lines in their order."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder, tempfile.TemporaryDirectory(
        dir=arguments.shm
    ) as memory:
        spec = dict(spec, data=data, interval=arguments.interval)
        if name in PYTORCH:
            with open(folder + "/spec.json", "w", encoding="utf-8") as file:
                json.dump(spec, file)
            here = os.path.dirname(os.path.abspath(__file__))
            script = os.path.join(here, "pytorch_checkpoint.py")
            command = [sys.executable, script, folder + "/spec.json", PYTORCH[name], folder]
            preload = {"LD_PRELOAD": arguments.tcmalloc} if arguments.tcmalloc else {}
            lines = run_steps(command, preload)
            ordered = [line for _, line in lines]
        else:
            spec["checkpoint"] = list(FOURFOLD[name])
            if name != "fourfold-off":
                spec["checkpoint"] += [
                    f"save_interval = {arguments.interval}",
                    f"keep_latest = {KEEP_LATEST}",
                    f"memory_dir = {json.dumps(memory)}",
                ]
            with open(folder + "/run.toml", "w", encoding="utf-8") as file:
                file.write(toml_of(spec, folder))
            lines = run_steps([arguments.fourfold, "train", folder + "/run.toml", "--json"], {})
            with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
                ordered = [json.loads(line) for line in file]
    return [(at, line) for at, line in lines if "step_seconds" in line], ordered


def steps_in_flight(ordered, save):
    """Steps that were taken between the save's start and its commit."""
    until = ordered.index(save)
    return sum("step_seconds" in line and line["step"] > save["step"] for line in ordered[:until])


def measure(arguments, name, spec, data, warm_up):
    """Of one run, without its first steps and its last interval."""
    steps, ordered = run_variant(arguments, name, spec, data)
    arrival = {line["step"]: at for at, line in steps}
    held = {line["step"]: line.get("checkpoint_seconds", 0.0) for _, line in steps}
    interval, last = arguments.interval, spec["steps"] - arguments.interval
    pairs, intervals = [], []
    for start in range(warm_up, last, interval):
        # The line of a step comes before the save at its end, which belongs to what follows.
        middle, end = start + interval // 2, start + interval
        pairs.append((arrival[middle] - arrival[start], arrival[end] - arrival[middle]))
        intervals.append(arrival[end] - arrival[start])
    saves = [line for line in ordered if "checkpoint" in line and warm_up <= line["step"] < last]
    for save in saves:
        save["in_flight"] = steps_in_flight(ordered, save)
    return {
        "pairs": pairs,
        "intervals": intervals,
        "due": 0 if name.endswith("-off") else len(pairs),
        "saves": saves,  # Those committed; a newer state may have taken the place of others.
        "held": sum(held[step] for step in range(warm_up + 1, last + 1)),
    }


def bootstrap(values, statistic):
    """The statistic of the rows of `values` with its 95 % interval, in percent."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return f"{100 * statistic(values):+.1f} %"
    draws = np.random.default_rng(0).integers(len(values), size=(10_000, len(values)))
    low, high = np.percentile([statistic(values[draw]) for draw in draws], [2.5, 97.5])
    return f"{100 * statistic(values):+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})"


def ratio_of_sums(pairs):
    return pairs[:, 0].sum() / pairs[:, 1].sum() - 1


def median_of(saves, key, form):
    values = [save[key] for save in saves if save.get(key) is not None]
    return form.format(np.median(values)) if values else "-"


def cost_cells(runs, step):
    """What the saves of a variant cost; `step` is the time of one without saves."""
    saves = [save for run in runs for save in run["saves"]]
    times = [1e3 * save["held_seconds"] for save in saves]
    # Flags are exchanged at every step, also when a run says of a save that it cost nothing.
    held = sum(run["held"] for run in runs) / sum(sum(run["intervals"]) for run in runs)
    return [
        f"{len(saves)} of {sum(run['due'] for run in runs)}",
        f"{saves[0]['bytes'] / 1e6:.1f}" if saves else "-",
        f"{np.median(times):.1f} ({max(times):.1f})" if saves else "-",
        f"{np.median(times) / step / 10:.2f} %" if saves else "-",
        f"{100 * held:.2f} %",
        median_of(saves, "copy_seconds", "{:.3f}"),
        median_of(saves, "write_seconds", "{:.2f}"),
        median_of(saves, "cpu_seconds", "{:.3f}"),
    ]


def slow_down_cells(runs, off, interval):
    """`off` are the runs without saves, in the same order."""
    saves = [save for run in runs for save in run["saves"]]
    pairs = [pair for run in runs for pair in run["pairs"]]
    cells = [f"{1e3 * np.median([t for run in runs for t in run['intervals']]) / interval:.0f}"]
    cells += [median_of(saves, "in_flight", "{:.0f}"), bootstrap(pairs, ratio_of_sums)]
    if not off or runs is off:
        return cells + ["-", "-"]
    totals = [(sum(run["intervals"]), sum(other["intervals"])) for run, other in zip(runs, off)]
    median = np.median([a / b - 1 for a, b in totals])
    return cells + [bootstrap(totals, ratio_of_sums), f"{100 * median:+.1f} %"]


def print_table(head, rows):
    print("\n| " + " | ".join(head) + " |")
    print("|" + " --- |" * len(head))
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


def print_tables(results, interval):
    costs, slow_downs = [], []
    for name, runs in results.items():
        off = results.get(name.split("-")[0] + "-off", [])
        step = np.median([t for run in off or runs for t in run["intervals"]]) / interval
        if not name.endswith("-off"):
            costs.append([name, *cost_cells(runs, step)])
        slow_downs.append([name, *slow_down_cells(runs, off, interval)])
    print_table(
        ["run", "saves", "MB", "main thread held, ms: median (worst)", "median of a step"]
        + ["of all time", "copy, s", "write, s", "CPU time, s"],
        costs,
    )
    print_table(
        ["run", "ms a step", "steps in flight", "paired", "to off", "to off, median"], slow_downs
    )


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--model", default="27m", choices=MODELS)
    parser.add_argument("--steps", type=int, default=200, help="measured, of all rounds together")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--interval", type=int, default=2, help="steps from save to save, even")
    parser.add_argument("--variants", default=",".join([*FOURFOLD, *PYTORCH]))
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk to write to")
    parser.add_argument("--shm", default="/dev/shm", help="for the snapshots")
    parser.add_argument("--minutes", type=float, default=75, help="no round begins after that")
    parser.add_argument("--tcmalloc", default="", help="preloaded into PyTorch's process")
    parser.add_argument("--raw", default="", help="file for the figures of each run, as JSON")
    arguments = parser.parse_args()
    arguments.variants = arguments.variants.split(",")
    for name in arguments.variants:
        if name not in FOURFOLD and name not in PYTORCH:
            parser.error(f"no variant {name}; there are {', '.join([*FOURFOLD, *PYTORCH])}")
    if arguments.interval < 2 or arguments.interval % 2:
        parser.error("--interval is even")
    return arguments


def main():
    arguments = parse()
    interval, begin = arguments.interval, time.monotonic()
    warm_up = -(-LEAST_WARM_UP // interval) * interval
    measured = max(1, arguments.steps // arguments.rounds // interval) * interval
    spec = complete(MODELS[arguments.model])
    spec.update(steps=warm_up + measured + interval, precision="fp32", threads=os.cpu_count())
    check_room(arguments, spec)
    results = {name: [] for name in arguments.variants}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        data = folder + "/tokens"
        write_data(data, spec["vocab"], spec["seq_len"] * spec["batch"] * (spec["steps"] + 1) + 1)
        for turn in range(arguments.rounds):
            if time.monotonic() - begin > 60 * arguments.minutes:
                print(f"the time is over after {turn} rounds", file=sys.stderr)
                break
            # Each comes first, second, ... in some round.
            at = turn % len(results)
            for name in arguments.variants[at:] + arguments.variants[:at]:
                print(f"round {turn + 1}: {name}", file=sys.stderr)
                results[name].append(measure(arguments, name, spec, data, warm_up))
    if arguments.raw:
        with open(arguments.raw, "w", encoding="utf-8") as file:
            json.dump(results, file)
    print(f"{arguments.model}, fp32, {measured} steps of each run, a save every {interval}")
    if all(results.values()):
        print_tables(results, interval)


if __name__ == "__main__":
    main()
