"""Runs under mpirun that are killed and stopped at each phase of a checkpoint, and go on.

usage: checkpoint_faults_test.py PROGRAM

Each time: the run ends by itself, soon and with the documented code; what is on the disk is whole;
the same command goes on from the newest committed checkpoint, or from a newer one that was copied;
and the end is, byte for byte, that of a run that nothing happened to.
"""

import concurrent.futures
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
import harness  # noqa: E402
import mpirun  # noqa: E402
from harness import COMMUNICATION, PROGRAM, Case  # noqa: E402

GRID = {"y": 2, "z": 2}
RANKS, LAST = 4, 3
STEPS, INTERVAL = 24, 8
SAVED = FIRST, SECOND, LATEST = range(INTERVAL, STEPS + 1, INTERVAL)
TIMEOUT = 5  # comm.timeout_seconds
ENDED = 30  # Seconds between the last step and the end of all processes.
KILLED = 128 + signal.SIGKILL  # mpirun's own code.
SCRATCH = tempfile.TemporaryDirectory(prefix="fourfold-reference-")


class Ended:
    """What a run did, how long it took after its last step, and all that it said."""

    def __init__(self, done, run, begin):
        self.code, self.text = done.returncode, done.stdout + done.stderr
        metrics = run / "metrics.jsonl"  # A line for each step.
        last = metrics.stat().st_mtime if metrics.exists() else 0
        self.silent = time.time() - last if last >= begin else 0
        self.shown = f"exit {self.code}, {self.silent:.1f} s after the last step\n{self.text}"


def copies_of(run):
    """Where the run keeps the copies of its state that outlive its processes."""
    return run.with_name(run.name + "-copies")


def train(run_file, run, fault="", **more):
    """Asynchronous and without such copies, unless `more` says otherwise."""
    settings = {**{f"parallel.{axis}": n for axis, n in GRID.items()}, "train.steps": STEPS,
                "comm.timeout_seconds": TIMEOUT, "log.report": "false", "log.tensorboard": "false"}
    keeping = {"save_interval": INTERVAL, "keep_latest": 1, "memory_dir": "", **more}
    settings.update({f"checkpoint.{key}": value for key, value in keeping.items()})
    command = [*mpirun.MPIRUN, str(RANKS), PROGRAM, "train", run_file, "--run-dir", run,
               *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
    begin = time.time()
    done = subprocess.run(list(map(str, command)), cwd=run.parent, stdin=subprocess.DEVNULL,
                          env={**os.environ, "NO_COLOR": "1", "FOURFOLD_FAULT": fault},
                          capture_output=True, text=True, errors="replace",
                          timeout=harness.SECONDS, check=False)
    return Ended(done, run, begin)


def current(run):
    """The step that CURRENT names; 0 where nothing was committed."""
    path = run / "checkpoints" / "CURRENT"
    return int(re.match(r"step-(\d+)", path.read_text())[1]) if path.exists() else 0


def tensor_files(run, step):
    """By name, of a step that was saved once or, after a return, again."""
    folder = max((run / "checkpoints").glob(f"step-{step:08}*"))
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


@functools.lru_cache(maxsize=None)
def reference():
    """The run folder of a run that nothing happens to, that waits for each save and keeps all."""
    scratch = pathlib.Path(SCRATCH.name)
    run_file = scratch / "run.toml"
    run_file.write_text(harness.RUN.format(more="", vocab=251, x=1, z=2, steps=STEPS,
                                           save=INTERVAL, train=harness.SAMPLE))
    ended = train(run_file, scratch / "run", keep_latest=len(SAVED), **{"async": "false"})
    assert ended.code == 0, ended.shown
    return scratch / "run"


def end_processes_of(run):
    """Kills the ranks that mpirun left behind: stopped ones, which hear nothing else."""
    while True:
        left = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if os.fsencode(run) in path.read_bytes().split(b"\0"):
                    left.append(int(path.parent.name))
                    os.kill(left[-1], signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass  # It ended meanwhile.
        if not left:
            return
        time.sleep(0.05)


class Fault:
    """One fault, and from where the run goes on after it: from the newest checkpoint on the disk,
    which is of one of `steps`, or with copies that outlive the processes from the first of `steps`
    or later."""

    def __init__(self, spec, *steps, copies=False, **more):
        self.spec, self.steps, self.copies, self.more = spec, steps, copies, more

    def __repr__(self):
        return f"{self.spec}{' with copies' if self.copies else ''} {self.more or ''}"


class Faults(Case):
    def setUp(self):
        super().setUp()
        reason = mpirun.missing(PROGRAM)
        if reason:
            self.skipTest(reason)
        self.run_file = self.write_run(steps=STEPS)
        reference()

    def new_run(self, copies=False):
        """The folder of a run, and what it is started with."""
        run = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        self.addCleanup(end_processes_of, run)
        if not copies:
            return run, {}
        copies_of(run).mkdir()
        return run, {"memory_dir": copies_of(run)}

    def each(self, cases, check=None):
        """Checks the cases, two at a time: most of it is waiting."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            outcomes = [(case, pool.submit(check or self.check, case)) for case in cases]
        for case, outcome in outcomes:
            with self.subTest(case=case):
                outcome.result()

    def check(self, fault):
        """A run ends with the fault, and goes on to the same end."""
        run, more = self.new_run(fault.copies)
        more.update(fault.more)
        self.interrupt(run, fault.spec, **more)
        if not fault.copies:
            self.assertIn(current(run), fault.steps)
        self.go_on(run, fault.steps[0] if fault.copies else None, **more)

    def interrupt(self, run, fault, **more):
        ended = train(self.run_file, run, fault, **more)
        self.assertLess(ended.silent, ENDED, ended.shown)
        if fault.startswith("kill"):
            self.assertEqual(KILLED, ended.code, ended.shown)
        else:
            self.assertEqual(COMMUNICATION, ended.code, ended.shown)
            rank = fault.split("/")[1]
            self.assertRegex(ended.text, rf"error: .*\branks? (\d+(,| and) )*{rank}\b", ended.shown)
            self.assertTrue(list(run.glob("incidents/rank-*.txt")), ended.shown)
        end_processes_of(run)
        if current(run):
            self.succeed("ckpt", "verify", run)

    def go_on(self, run, copied=None, **more):
        """The same command, without the fault, to its end."""
        committed = current(run)
        ended = train(self.run_file, run, **more)
        self.assertEqual(0, ended.code, ended.shown)
        found = re.search(r"resumed at step (\d+) ", ended.text)
        resumed = int(found[1]) if found else 0
        if copied is None:
            self.assertEqual(committed, resumed, ended.shown)
        else:
            self.assertGreaterEqual(resumed, max(copied, committed), ended.shown)
        self.check_end(run)
        return ended.text

    def check_end(self, run):
        self.assertEqual(LATEST, current(run))
        self.check_files(run, LATEST)
        self.assertIn("equal: ", self.succeed("ckpt", "diff", reference(), run))
        self.succeed("ckpt", "verify", run)
        # Nothing is left of what was interrupted.
        self.assertEqual([], list(run.glob("checkpoints/*/*.tmp")))
        for folder in run.glob("checkpoints/*/"):
            self.assertTrue((folder / "manifest.json").exists(), folder)
        if copies_of(run).exists():
            self.assertEqual([], list(copies_of(run).iterdir()))


    def check_files(self, run, step):
        expected, files = tensor_files(reference(), step), tensor_files(run, step)
        self.assertEqual(RANKS, len(expected))
        self.assertEqual(sorted(expected), sorted(files))
        for name, content in expected.items():
            self.assertTrue(content == files[name], f"{name} of step {step} is another")


class Asynchronous(Faults):
    """Phase by phase, in the second checkpoint, when the first is committed."""

    def test_nothing_happens(self):
        def check(keep):
            run, more = self.new_run(copies=keep > 1)
            ended = train(self.run_file, run, **more, keep_latest=keep)
            self.assertEqual(0, ended.code, ended.shown)
            self.check_end(run)
            kept = list(run.glob("checkpoints/*step-*"))
            self.assertEqual(keep, len(kept), kept)
            for step in SAVED[-keep:]:
                self.check_files(run, step)

        self.each((1, len(SAVED)), check)

    def test_killed_in_each_phase(self):
        step = SECOND + 2  # The second is copied, and on its way to the disk.
        self.each([Fault(f"kill@step:{step}/0", SECOND, copies=True),
                   Fault(f"kill@step:{step}/{LAST}", FIRST, SECOND),
                   Fault("kill@ckpt.prepare:2/0", FIRST),
                   Fault("kill@ckpt.snapshot:2/0", FIRST, copies=True),
                   Fault(f"kill@ckpt.snapshot:2/{LAST}", FIRST),
                   Fault("kill@ckpt.write:2/0", FIRST),
                   Fault(f"kill@ckpt.write:2/{LAST}", SECOND, copies=True),
                   Fault("kill@ckpt.commit:2/0", FIRST),
                   Fault("kill@ckpt.commit:2/0", SECOND, copies=True),
                   Fault("kill@ckpt.committed:2/0", SECOND),
                   Fault("kill@ckpt.retain:2/0", SECOND)])

    def test_stopped_in_each_phase(self):
        step = SECOND + 2
        self.each([Fault(f"stop@step:{step}/0", FIRST, SECOND),
                   Fault(f"stop@step:{step}/{LAST}", SECOND, copies=True),
                   Fault("stop@ckpt.prepare:2/0", FIRST),
                   Fault("stop@ckpt.snapshot:2/0", FIRST),
                   Fault(f"stop@ckpt.snapshot:2/{LAST}", FIRST, copies=True),
                   Fault("stop@ckpt.write:2/0", SECOND, copies=True),
                   Fault(f"stop@ckpt.write:2/{LAST}", FIRST),
                   # mpirun wakes a stopped process before it kills it: a commit may go on and end.
                   Fault("stop@ckpt.commit:2/0", FIRST, SECOND),
                   Fault("stop@ckpt.committed:2/0", SECOND),
                   Fault("stop@ckpt.retain:2/0", SECOND)])

    def test_in_the_first_checkpoint(self):
        """Only where nothing was ever committed or copied does the run begin anew."""
        self.each([Fault("kill@ckpt.commit:1/0", 0),
                   Fault("kill@ckpt.commit:1/0", FIRST, copies=True),
                   Fault("kill@ckpt.committed:1/0", FIRST)])

    def test_in_the_last_checkpoint(self):
        """When no step follows, and all that is left is to wait for the disk."""
        before = {"save_interval": STEPS - 2}  # The second is then the last.
        self.each([Fault(f"kill@ckpt.write:2/{LAST}", STEPS - 2, **before),
                   Fault(f"kill@ckpt.write:2/{LAST}", STEPS, copies=True, **before),
                   Fault("stop@ckpt.write:2/0", STEPS - 2, **before),
                   Fault("kill@ckpt.retain:2/0", STEPS, **before)])

    def test_faults_while_the_run_resumes(self):
        """Copies are written by the next start: the first checkpoint that it counts."""
        def check(copies):
            run, more = self.new_run(copies)
            for fault, step in (("kill@ckpt.commit:2/0", FIRST),
                                (f"kill@ckpt.write:1/{LAST}", FIRST),
                                ("kill@ckpt.committed:1/0", SECOND)):
                self.interrupt(run, fault, **more)
                self.assertEqual(step, current(run))
            self.go_on(run, SECOND if copies else None, **more)

        self.each((False, True), check)

    def test_copies_that_are_damaged_or_gone(self):
        """Those of one rank: then those of the others are of no use."""
        def flip(path):
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)

        def check(harm):
            run, more = self.new_run(copies=True)
            self.interrupt(run, f"kill@ckpt.write:2/{LAST}", **more)
            found = list(copies_of(run).rglob(f"rank-{LAST:05}.*.safetensors"))
            self.assertTrue(found)
            for path in found:
                harm(path)
            self.assertRegex(self.go_on(run, **more), rf"of no use: .*/rank-{LAST:05}\.")

        self.each((flip, pathlib.Path.unlink), check)


class Synchronous(Faults):
    """The same where training waits for each save."""

    def test_each_phase(self):
        waiting = {"async": "false"}
        self.each([Fault("kill@ckpt.prepare:2/0", FIRST, **waiting),
                   Fault(f"kill@ckpt.write:2/{LAST}", FIRST, **waiting),
                   Fault(f"stop@ckpt.write:2/{LAST}", FIRST, **waiting),
                   Fault("kill@ckpt.committed:2/0", SECOND, **waiting),
                   Fault(f"kill@step:{SECOND + 1}/{LAST}", SECOND, **waiting)])


if __name__ == "__main__":
    harness.main()
