"""Whole models as processes under mpirun: the same bits as with ranks that are threads.

usage: runs_mpi_test.py PROGRAM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import counted  # noqa: E402
import mpirun  # noqa: E402

PROGRAM = os.path.abspath(sys.argv[1])
SECONDS = 900


class Case(unittest.TestCase):
    def setUp(self):
        reason = mpirun.missing(PROGRAM)
        if reason:
            self.skipTest(reason)

    def run_program(self, ranks, *arguments):
        """Standard output of the program, as one process or (ranks > 0) under mpirun."""
        command = [*mpirun.MPIRUN, str(ranks), PROGRAM] if ranks else [PROGRAM]
        done = subprocess.run([*command, *map(str, arguments)], cwd=ROOT, capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, errors="replace",
                              timeout=SECONDS, check=False)
        self.assertEqual(0, done.returncode, f"{command} {arguments}\n{done.stdout}{done.stderr}")
        return done.stdout


class Verify(Case):
    """Every grid of the list by its number of ranks, and bit by bit against threads."""

    LABELS = "grid", "accumulation", "expert", "recompute", "balance"

    def cases(self, ranks, file):
        found = {}
        for line in self.run_program(ranks, "verify", file, "--json").splitlines():
            if not line.startswith("{"):
                continue
            case = json.loads(line)
            key = tuple(case[label] for label in self.LABELS if label in case)
            self.assertNotIn(key, found)
            self.assertNotIn("skipped", case)
            self.assertTrue(case["passed"] and case["initial_weights_equal"], case)
            found[key] = case["hash"]
        return found

    def check(self, file):
        threads = self.cases(0, file)
        grids = {key[0] for key in threads}
        self.assertEqual(13, len(grids))
        self.assertEqual({(g, a) for g in grids for a in (1, 3)}, set(threads))
        self.compare(threads, file, (2, 4, 6, 8))

    def compare(self, threads, file, rank_counts):
        for ranks in rank_counts:
            expected = {key: bits for key, bits in threads.items()
                        if self.size(key[0]) == ranks}
            self.assertTrue(expected, ranks)
            self.assertEqual(expected, self.cases(ranks, file), f"{ranks} processes")

    @staticmethod
    def size(grid):
        size = 1
        for n in grid.split("x"):
            size *= int(n)
        return size

    def test_gpt(self):
        self.check("configs/verify-gpt.toml")

    def test_llama(self):
        self.check("configs/verify-llama.toml")

    def test_experts(self):
        """Each way of balance, with recompute and without, on 13 places of experts."""
        file = "configs/verify-moe.toml"
        threads = self.cases(0, file)
        self.assertEqual(13 * 2 * 2 * 6, len(threads))
        self.assertEqual(6, len({key[-1] for key in threads}))
        for (*place, recompute, balance), bits in threads.items():
            self.assertEqual(threads[(*place, "none", balance)], bits, "recompute changes bits")
            self.assertIn(recompute, ("none", "full"))
        self.compare(threads, file, (4,))


class Train(Case):
    STEPS, CUT = 8, 5

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory(prefix="fourfold-mpi-")
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def train(self, ranks, name, steps):
        out = self.run_program(ranks, "train", "configs/verify-gpt.toml", "--run-dir",
                               self.folder / name, "--set", f"train.steps={steps}", "--set",
                               "schedule.name=constant", "--set", "checkpoint.save_interval=5",
                               "--set", "log.report=false")
        self.assertIn("processes (MPI)" if ranks else "threads of this process", out)
        return out

    def figures(self, name):
        """What must not change a bit, by step."""
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        kept = {}
        for record in map(json.loads, lines):
            if "loss" in record:
                kept[record["step"]] = record["loss"], record["grad_norm"], record["lr"]
            elif "val_loss" in record:
                kept[record["step"], "valid"] = record["val_loss"]
        return kept

    def test_the_bits_of_threads_from_start_to_end_and_after_a_resume(self):
        self.train(0, "threads", self.STEPS)
        whole = self.figures("threads")
        self.assertEqual(set(range(1, self.STEPS + 1)), {k for k in whole if isinstance(k, int)})
        self.train(4, "processes", self.STEPS)
        self.assertEqual(whole, self.figures("processes"))
        # A checkpoint written by threads, gone on from by processes.
        self.train(0, "both", self.CUT)
        self.assertIn(f"resumed at step {self.CUT} ", self.train(4, "both", self.STEPS))
        both = self.figures("both")
        self.assertEqual({k: v for k, v in whole.items() if k != (self.CUT, "valid")},
                         {k: v for k, v in both.items() if k != (self.CUT, "valid")})


if __name__ == "__main__":
    del sys.argv[1:]
    counted.main()
