"""What the tests of the command line share: the program, scratch folders, small run files."""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import counted  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
SECONDS = 120  # No command of these tests runs longer; one that does hangs.

# Exit codes of docs/cli.md.
USAGE, DATA, COMMUNICATION, NO_CHECKPOINT, NUMERICS, SAVED = 2, 3, 4, 5, 6, 75

RUN = """
[model]
family = "gpt"
layers = 1
hidden = 33
heads = 3
ffn = 50
seq_len = 17
vocab = {vocab}
[parallel]
x = {x}
z = {z}
[train]
steps = {steps}
global_batch = 4
micro_batch = 1
log_interval = 1
[optimizer]
lr = 1e-2
[data]
train = "{train}"
{more}
[checkpoint]
save_interval = {save}
keep_latest = 3
memory_dir = ""
"""
SAMPLE = ROOT / "configs" / "data" / "verify-train"


def words_text(words, seed=1):
    """Lines of made-up words, various enough for any small vocabulary; always the same."""
    draw = random.Random(seed)
    known = ["".join(draw.choice("abcdefghijklmnop") for _ in range(draw.randint(2, 8)))
             for _ in range(400)]
    lines = [" ".join(draw.choice(known) for _ in range(12)) for _ in range(words // 12)]
    return "the quick brown fox\n" * 50 + "\n".join(lines) + "\n"


class Case(unittest.TestCase):
    """A scratch folder for each test, in which its commands run."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="fourfold-cli-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_program(self, *arguments, **more):
        environment = {**os.environ, "NO_COLOR": "1", **more}
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, env=environment,
                              capture_output=True, text=True, errors="replace", timeout=SECONDS,
                              check=False)

    def succeed(self, *arguments, **more):
        done = self.run_program(*arguments, **more)
        self.assertEqual(0, done.returncode, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def refuse(self, code, cause, *arguments, **more):
        """The command must end with this code and a cause of one line; returns the hint."""
        done = self.run_program(*arguments, **more)
        shown = f"{arguments}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.assertEqual(code, done.returncode, shown)
        lines = done.stderr.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        self.assertEqual(1, len(errors), shown)
        self.assertRegex(errors[0], cause, shown)
        hints = [line for line in lines if line.startswith("hint: ")]
        self.assertEqual(1, len(hints), shown)
        return hints[0]

    def write_run(self, file="run.toml", more="", **values):
        values = {"vocab": 251, "x": 1, "z": 2, "steps": 4, "save": 2, "train": SAMPLE, **values}
        path = self.folder / file
        path.write_text(RUN.format(more=more, **values))
        return path


def main():
    del sys.argv[1:]
    counted.main()
