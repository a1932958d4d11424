"""What goes wrong around a run, as a user sees it: lost ranks, a full disk, numbers that blow up.

usage: failures_test.py PROGRAM
"""

import json
import os
import shutil
import subprocess
import tempfile
import time

import harness
import mpirun
from harness import COMMUNICATION, DATA, NUMERICS, PROGRAM, Case

REPORTED = 30  # Seconds within which a lost peer is reported.
OPERATION = r"all.reduce|all.gather|reduce.scatter|broadcast|barrier"


class Ended:
    """What a command did, how long it took, and all that it said."""

    def __init__(self, done, seconds):
        self.code, self.seconds = done.returncode, seconds
        self.text = done.stdout + done.stderr
        self.shown = f"exit {self.code} after {seconds:.1f} s\n{self.text}"


class LostRanks(Case):
    def mpirun(self, ranks, *arguments, **more):
        reason = mpirun.missing(PROGRAM)
        if reason:
            self.skipTest(reason)
        command = [*mpirun.MPIRUN, str(ranks), PROGRAM, *map(str, arguments)]
        return self.timed(command, more)

    def timed(self, command, more):
        begin = time.monotonic()
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL,
                              env={**os.environ, "NO_COLOR": "1", **more}, capture_output=True,
                              text=True, errors="replace", timeout=harness.SECONDS, check=False)
        return Ended(done, time.monotonic() - begin)

    def test_a_rank_that_dies_under_mpirun(self):
        run = self.write_run(steps=50)
        ended = self.mpirun(2, "train", run, FOURFOLD_FAULT="kill@step:10/1")
        self.assertNotEqual(0, ended.code, ended.shown)
        self.assertLess(ended.seconds, REPORTED, ended.shown)
        self.assertIn("step     9/50", ended.text, ended.shown)
        self.assertNotIn("step    10/50", ended.text, ended.shown)
        # What was saved before is whole, and the run goes on from there.
        self.succeed("ckpt", "verify", "runs/run")
        self.assertRegex(self.succeed("train", run, "--set", "train.steps=12"),
                         r"resumed at step [2468] ")

    def test_a_rank_that_stops_answering_under_mpirun(self):
        ended = self.mpirun(2, "train", self.write_run(steps=50), "--set",
                            "comm.timeout_seconds=5", FOURFOLD_FAULT="stop@step:3/1")
        self.assertNotEqual(0, ended.code, ended.shown)
        self.assertLess(ended.seconds, REPORTED, ended.shown)
        self.check_report(ended)

    def test_a_hanging_thread_rank(self):
        """Its peer reports it, and the process ends without the thread."""
        command = [PROGRAM, "train", self.write_run(steps=50), "--set", "comm.timeout_seconds=3"]
        ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True,
                               timeout=REPORTED, check=False,
                               env={**os.environ, "FOURFOLD_FAULT": "hang@step:3/1"})
        self.assertEqual(COMMUNICATION, ended.returncode, ended.stderr)
        self.assertIn("rank 1 does not end", ended.stderr)
        self.check_incident()

    def incident(self):
        return self.folder / "runs" / "run" / "incidents" / "rank-00000.txt"

    def check_incident(self, shown=""):
        self.assertTrue(self.incident().exists(), shown)
        text = self.incident().read_text()
        self.assertRegex(text, r"\brank 1\b", shown)
        self.assertRegex(text, OPERATION, shown)

    def check_report(self, ended):
        """The message says what was waited for and for whom, and an incident is kept."""
        errors = [line for line in ended.text.splitlines() if line.startswith("error: ")]
        self.assertTrue(errors, ended.shown)
        self.assertRegex(errors[0], r"\brank 1\b", ended.shown)
        self.assertRegex(errors[0], OPERATION, ended.shown)
        self.check_incident(ended.shown)


class Numbers(Case):
    def losses(self):
        lines = (self.folder / "runs/run/metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if "\"loss\"" in line]

    def exploding(self, *more):
        return ["train", self.write_run(steps=8, save=0, more='[schedule]\nname = "constant"'),
                "--set", "optimizer.lr=1e30", "--set", "optimizer.clip_grad=0", *more]

    def test_numbers_that_blow_up_stop_the_run(self):
        hint = self.refuse(NUMERICS, r"step \d+", *self.exploding())
        self.assertRegex(hint, r"non_finite|lr|clip", hint)

    def test_or_are_skipped_by_policy(self):
        self.succeed(*self.exploding("--set", "train.non_finite=skip"))
        self.assertEqual(8, len(self.losses()))
        self.assertTrue(self.losses()[-1].get("skipped"), self.losses()[-1])


class FullDisk(Case):
    """The run folder on a file system of a few hundred KiB."""

    KIB = 800

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not shutil.which("mount"):
            self.skipTest("only root can mount a small file system")
        self.disk = tempfile.mkdtemp(prefix="fourfold-disk-")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.KIB}k", "tmpfs",
                               self.disk], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            os.rmdir(self.disk)
            self.skipTest(f"a small file system cannot be mounted: {done.stderr.strip()}")
        self.addCleanup(os.rmdir, self.disk)
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def test_a_full_disk(self):
        run, where = self.write_run(steps=2, save=2), f"{self.disk}/run"
        train = ["train", run, "--run-dir", where, "--set", "log.report=false", "--set",
                 f"checkpoint.memory_dir={self.folder}"]
        self.succeed(*train)
        # What is left holds part of another checkpoint only.
        size = sum(f.stat().st_size for f in (self.disk_path() / "checkpoints").rglob("*")
                   if f.is_file())
        left = shutil.disk_usage(self.disk).free
        filler = self.disk_path() / "filler"
        filler.write_bytes(b"x" * max(0, left - size // 2))
        hint = self.refuse(DATA, r"(?i)space|full", *train, "--set", "train.steps=4")
        self.assertRegex(hint, r"(?i)space|free|disk", hint)
        listed = self.succeed("ckpt", "ls", where)
        self.assertIn("step-00000002", listed)
        self.assertNotIn("step-00000004", listed)
        self.succeed("ckpt", "verify", where)
        filler.unlink()
        # The state that found no room was copied, and is not lost.
        text = self.succeed(*train, "--set", "train.steps=4")
        self.assertIn("step-00000004 was still in memory", text)
        self.assertIn("resumed at step 4", text)
        self.assertIn("step-00000004", self.succeed("ckpt", "ls", where))
        self.succeed("ckpt", "verify", where)

    def disk_path(self):
        return harness.pathlib.Path(self.disk) / "run"


class Tokenizers(Case):
    def test_a_tokenizer_that_does_not_match_the_data(self):
        for name, seed in (("one", 1), ("two", 2)):
            (self.folder / f"{name}.txt").write_text(harness.words_text(3000, seed))
            self.succeed("data", "tokenizer", "--input", f"{name}.txt", "--vocab", "300",
                         "--output", f"tokenizer-{name}.json")
        self.succeed("data", "prepare", "--input", "one.txt", "--tokenizer", "tokenizer-one.json",
                     "--output", "one")
        run = self.write_run(vocab=300, train=self.prefix("one"), steps=1)
        self.succeed("train", run, "--set", "data.tokenizer=tokenizer-one.json")
        hint = self.refuse(DATA, "(?i)tokenizer", "train", run, "--set",
                           "data.tokenizer=tokenizer-two.json")
        self.assertRegex(hint, "(?i)tokenizer|prepare", hint)

    def prefix(self, name):
        """Where `data prepare` put the part to train on."""
        names = sorted(p.name for p in self.folder.glob(f"{name}*.bin"))
        chosen = [n for n in names if "train" in n] or names
        self.assertTrue(chosen, os.listdir(self.folder))
        return chosen[0].removesuffix(".bin")


if __name__ == "__main__":
    harness.main()
