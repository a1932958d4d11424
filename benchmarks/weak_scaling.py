"""How the time of a step grows with thread ranks on an emulated network of nodes.

usage: weak_scaling.py FOURFOLD [--machine configs/machines/two-slow-nodes.toml] [--steps N]
                       [--rounds N] [--batch N] [--grids 1x1x1x1,1x1x1x2,...]

Weak: --batch sequences for each rank. Fixed: as many as the largest grid needs, on every grid.
All ranks share this machine's cores, which one rank has for itself, so a step of the same work
takes as long at best: beside its seconds stands its efficiency, the seconds of one rank for that
work over them. The network is emulated (comm.emulate): the figures show overlap at work and prove
nothing about a real one. All grids take turns in each round; medians without the first steps of
each run.
"""

import argparse
import os
import statistics
import sys
import tempfile

from against_pytorch import WARM_UP, complete, prepare, run

GRIDS = "1x1x1x1,1x1x1x2,2x1x1x1,1x1x2x1,1x1x1x4,2x1x2x1,2x2x1x1,1x1x1x8,2x1x2x2,2x2x2x1"
MODEL = dict(family="gpt", layers=4, hidden=256, heads=8, vocab=4096, seq_len=128)
RUN_SECONDS = 600
ONE = "1x1x1x1"


def size_of(grid):
    x, y, z, data = (int(n) for n in grid.split("x"))
    return x * y * z * data


def step_times(arguments, folder, grid, batch):
    x, y, z, data = (int(n) for n in grid.split("x"))
    values = [f"parallel.x={x}", f"parallel.y={y}", f"parallel.z={z}", f"parallel.data={data}",
              f"train.global_batch={batch}", f"train.micro_batch={batch // (z * data)}"]
    if size_of(grid) > 1:
        values += ["comm.emulate=true", f"machine.file={arguments.machine}"]
    command = [arguments.fourfold, "train", folder + "/run.toml", "--json"]
    for value in values:
        command += ["--set", value]
    lines = [line for line in run(command, seconds=RUN_SECONDS) if "step_seconds" in line]
    return [line["step_seconds"] for line in lines[WARM_UP:]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--machine", default="configs/machines/two-slow-nodes.toml")
    parser.add_argument("--grids", default=GRIDS)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    grids = arguments.grids.split(",")
    if ONE not in grids:
        sys.exit(f"one rank is what the others are compared with: add {ONE}")
    if arguments.steps <= WARM_UP:
        parser.error(f"the first {WARM_UP} steps don't count: take more")
    fixed = arguments.batch * max(size_of(grid) for grid in grids)
    weak, same = {grid: [] for grid in grids}, {grid: [] for grid in grids}
    with tempfile.TemporaryDirectory() as folder:
        prepare(complete(dict(MODEL, batch=fixed, steps=arguments.steps, precision="fp32")), folder)
        for _ in range(arguments.rounds):
            for grid in grids:
                weak[grid] += step_times(arguments, folder, grid, arguments.batch * size_of(grid))
                same[grid] += step_times(arguments, folder, grid, fixed)
    print(f"{os.cpu_count()} cores, emulated network {arguments.machine}, "
          f"{arguments.batch} sequences a rank\n")
    print("| ranks | grid | weak: s a step | efficiency | fixed: s a step | efficiency |")
    print("| --- | --- | --- | --- | --- | --- |")
    for grid in grids:
        ranks, w, f = size_of(grid), statistics.median(weak[grid]), statistics.median(same[grid])
        cells = [str(ranks), grid, f"{w:.3f}", f"{ranks * statistics.median(weak[ONE]) / w:.2f}"]
        cells += [f"{f:.3f}", f"{statistics.median(same[ONE]) / f:.2f}"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
