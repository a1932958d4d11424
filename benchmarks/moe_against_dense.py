"""Validation loss of a mixture of experts against a dense model with as many active parameters.

usage: moe_against_dense.py FOURFOLD --data data/kjv [--folder runs/moe-against-dense]
                            [--dense gpt-6m] [--moe moe-6m] [--steps 1000] [--interval 50]
                            [--batch 16] [--ranks N] [--seeds 1234,...] [--set K=V]...
                            [--set-dense K=V]... [--set-moe K=V]... [--minutes M] [--svg FILE]

Both train on the same tokens with the same schedule, are evaluated on the whole held-out text after
every --interval steps, and are compared at equal tokens. --data is a prefix: PREFIX-train and
PREFIX-valid are made from the King James text where they are missing, with the tokenizer beside.
After --minutes the runs save and stop; the same command goes on from there. What a folder began
with other settings is refused. Any time prints the table of what both have reached.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

from moe_curve import write_svg

SPENT = 75  # Exit code of a run that saved and left.
VOCAB = 4096
VALID_FRACTION = 0.05
SIDES = ["dense", "moe"]


def make_data(fourfold, prefix):
    """The quickstart's: text, tokenizer and tokens, in the prefix's folder."""
    if os.path.exists(prefix + "-train.idx") and os.path.exists(prefix + "-valid.idx"):
        return
    folder = os.path.dirname(prefix) or "."
    text, tokenizer = prefix + ".txt", folder + "/tokenizer.json"
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(text):
        with open(text + ".part", "wb") as file:
            subprocess.run(["bible", "-l0", "gen1:1-rev22:21"], stdout=file, check=True)
        os.replace(text + ".part", text)
    if not os.path.exists(tokenizer):
        command = [fourfold, "data", "tokenizer", "--input", text, "--vocab", str(VOCAB)]
        subprocess.run([*command, "--output", tokenizer], check=True)
    command = [fourfold, "data", "prepare", "--input", text, "--tokenizer", tokenizer]
    command += ["--output", prefix, "--valid-fraction", str(VALID_FRACTION)]
    subprocess.run(command, check=True)


def settings_of(arguments):
    """What decides the losses; the ranks and the time do not."""
    kept = ["dense", "moe", "steps", "interval", "batch", "set", "set_dense", "set_moe", "data"]
    return {key: getattr(arguments, key) for key in kept}


def hold_to_settings(arguments):
    path = arguments.folder + "/settings.json"
    os.makedirs(arguments.folder, exist_ok=True)
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(settings_of(arguments), file, indent=1)
        return
    with open(path, encoding="utf-8") as file:
        began = json.load(file)
    if began != settings_of(arguments):
        sys.exit(f"{arguments.folder} began with other settings; see {path}")


def run_file(arguments, side):
    # As the quickstart's, whose batch and schedule these are, but longer.
    lines = ["[model]", f"preset = {json.dumps(getattr(arguments, side))}", "dropout = 0.0"]
    lines += ["[parallel]", f"z = {arguments.ranks}"]
    lines += ["[train]", f"steps = {arguments.steps}", f"global_batch = {arguments.batch}"]
    lines += [f"micro_batch = {arguments.batch // arguments.ranks}", 'precision = "fp32"']
    lines += [f"eval_interval = {arguments.interval}"]
    lines += ["[optimizer]", "lr = 2e-3", "weight_decay = 0.1"]
    lines += ["[schedule]", 'name = "cosine"', f"warmup = {max(1, arguments.steps // 20)}"]
    lines += ["min_lr = 2e-4", "[data]", f"train = {json.dumps(arguments.data + '-train')}"]
    lines += [f"valid = {json.dumps(arguments.data + '-valid')}"]
    lines += ["[checkpoint]", f"save_interval = {arguments.interval}", "keep_latest = 1"]
    return "\n".join(lines) + "\n"


def run_folder(arguments, side, seed):
    return f"{arguments.folder}/{side}-{seed}"


def metrics(folder):
    """By step: the line of it, and the loss of an evaluation. A step that was taken again after a
    stop counts as it was the last time."""
    steps, losses = {}, {}
    try:
        with open(folder + "/metrics.jsonl", encoding="utf-8") as file:
            for line in map(json.loads, file):
                if "val_loss" in line:
                    losses[line["step"]] = line["val_loss"]
                elif "step_seconds" in line:
                    steps[line["step"]] = line
    except FileNotFoundError:
        pass
    return steps, losses


def train(arguments, side, seed, seconds):
    """Goes on with a run for so long at most."""
    path = f"{arguments.folder}/{side}.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(run_file(arguments, side))
    command = [arguments.fourfold, "train", path, "--json"]
    command += ["--run-dir", run_folder(arguments, side, seed)]
    own = arguments.set + getattr(arguments, "set_" + side)
    # Whole seconds; 0 would mean without end.
    own = [*own, f"run.seed={seed}", f"train.time_budget_seconds={max(1, round(seconds))}"]
    for value in own:
        command += ["--set", value]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        code = process.wait()
    if code not in (0, SPENT):
        sys.exit(f"{' '.join(command)} ended with exit code {code}")


def train_all(arguments):
    """The time goes evenly to the runs that are not done, pair by pair."""
    end = time.monotonic() + 60 * arguments.minutes
    for seed in arguments.seeds:
        for n, side in enumerate(SIDES):
            if arguments.steps in metrics(run_folder(arguments, side, seed))[1]:
                continue
            share = (end - time.monotonic()) / (len(SIDES) - n)
            if share < 1:
                return
            print(f"{side}, seed {seed}: up to {share / 60:.1f} minutes", file=sys.stderr)
            train(arguments, side, seed, share)


def parameters(arguments, side):
    with open(run_folder(arguments, side, arguments.seeds[0]) + "/log.txt", encoding="utf-8") as f:
        return re.search(r"model (.* parameters)", f.read()).group(1)


def curves(arguments):
    """{step: {side: losses by seed}} of the steps that both sides of all begun pairs reached."""
    pairs = [
        [metrics(run_folder(arguments, side, seed))[1] for side in SIDES]
        for seed in arguments.seeds
    ]
    pairs = [pair for pair in pairs if all(pair)]
    if not pairs:
        return {}
    steps = set.intersection(*(set(losses) for pair in pairs for losses in pair))
    return {
        step: {side: [pair[n][step] for pair in pairs] for n, side in enumerate(SIDES)}
        for step in sorted(steps)
    }


def step_seconds(arguments, side):
    """Median, of all seeds; the first steps warm up."""
    warm_up = 2
    return statistics.median(
        line["step_seconds"]
        for seed in arguments.seeds
        for step, line in metrics(run_folder(arguments, side, seed))[0].items()
        if step > warm_up
    )


def tokens_by_step(arguments):
    """The same of both sides, or they are no fair pair."""
    sides = []
    for side in SIDES:
        steps = metrics(run_folder(arguments, side, arguments.seeds[0]))[0]
        sides.append({step: line["tokens"] for step, line in steps.items()})
    for step in set(sides[0]) & set(sides[1]):
        if sides[0][step] != sides[1][step]:
            sys.exit(f"at step {step} the runs saw {sides[0][step]} and {sides[1][step]} tokens")
    return sides[0]


def print_table(tokens, losses):
    print("| step | tokens | dense | mixture of experts | difference |")
    print("| --- | --- | --- | --- | --- |")
    for step, by_side in losses.items():
        dense, moe = statistics.fmean(by_side["dense"]), statistics.fmean(by_side["moe"])
        cells = [f"{step}", f"{tokens[step]:,}", f"{dense:.4f}", f"{moe:.4f}"]
        print("| " + " | ".join([*cells, f"{moe - dense:+.4f}"]) + " |")


def verdict(arguments, losses):
    last = max(losses)
    by_side = losses[last]
    differences = [m - d for d, m in zip(by_side["dense"], by_side["moe"])]
    change = statistics.fmean(differences)
    word = "lower" if change < 0 else "higher"
    lines = [
        f"At step {last} of {arguments.steps} the mixture's loss is {abs(change):.4f} {word}"
        f" ({100 * (math.exp(change) - 1):+.1f} % perplexity)."
    ]
    if len(differences) == 1:
        lines += ["One seed: nothing is known of how far seeds differ."]
    else:
        same = all((d < 0) == (change < 0) for d in differences)
        values = ", ".join(f"{d:+.4f}" for d in differences)
        lines += [f"By seed: {values}; {'the same sign in all' if same else 'the signs differ'}."]
    aim = min(statistics.fmean(at["dense"]) for at in losses.values())
    reached = [step for step, at in losses.items() if statistics.fmean(at["moe"]) <= aim]
    if reached:
        lines += [f"It reaches the dense model's best loss, {aim:.4f}, by step {reached[0]}."]
    else:
        lines += [f"It does not reach the dense model's best loss, {aim:.4f}."]
    for side in SIDES:
        best = min(losses, key=lambda step, side=side: statistics.fmean(losses[step][side]))
        if best < last:
            rise = statistics.fmean(losses[last][side]) - statistics.fmean(losses[best][side])
            lines += [f"The {side} run was best at step {best}, {rise:.4f} below its last."]
    seconds = {side: step_seconds(arguments, side) for side in SIDES}
    lines += [
        f"A step of the mixture took {seconds['moe'] / seconds['dense']:.2f} times one of the dense"
        f" model ({1e3 * seconds['moe']:.0f} and {1e3 * seconds['dense']:.0f} ms, medians; the runs"
        " were not taken in turn)."
    ]
    if last < arguments.steps:
        lines += ["The runs are not done: this says little before the learning rate has fallen."]
    return lines


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("fourfold")
    parser.add_argument("--data", required=True, help="prefix of the tokens, made where missing")
    parser.add_argument("--folder", default="runs/moe-against-dense", help="of the runs")
    parser.add_argument("--dense", default="gpt-6m", help="preset")
    parser.add_argument("--moe", default="moe-6m", help="preset")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--interval", type=int, default=50, help="steps between evaluations")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step")
    parser.add_argument("--ranks", type=int, default=1, help="ranks of the grid's z")
    parser.add_argument("--seeds", default="1234")
    parser.add_argument("--set", action="append", default=[], help="of both run files")
    parser.add_argument("--set-dense", action="append", default=[])
    parser.add_argument("--set-moe", action="append", default=[])
    parser.add_argument("--minutes", type=float, default=60, help="of this call")
    parser.add_argument("--svg", default="", help="file for the curves")
    arguments = parser.parse_args()
    arguments.seeds = [int(seed) for seed in arguments.seeds.split(",")]
    if arguments.batch % arguments.ranks:
        parser.error("--batch is a multiple of --ranks")
    return arguments


def main():
    arguments = parse()
    make_data(arguments.fourfold, arguments.data)
    hold_to_settings(arguments)
    train_all(arguments)
    losses = curves(arguments)
    if not losses:
        sys.exit("no evaluation that both have reached: run it again")
    tokens = tokens_by_step(arguments)
    for side in SIDES:
        print(f"{side}: {parameters(arguments, side)}")
    print_table(tokens, losses)
    print("\n".join(verdict(arguments, losses)))
    if arguments.svg and len(losses) > 1:
        points = [
            (tokens[step], {side: statistics.fmean(by_side[side]) for side in SIDES})
            for step, by_side in losses.items()
        ]
        names = {side: getattr(arguments, side) for side in SIDES}
        write_svg(arguments.svg, names, points)


if __name__ == "__main__":
    main()
