"""The PyTorch trainer of pytorch_step.py with checkpoints by torch.distributed.checkpoint.

usage: pytorch_checkpoint.py SPEC.json MODE FOLDER
MODE is off, sync (save), async (async_save, which copies in the main thread) or staged (async_save
whose copy is a background thread's and is awaited before the next update). Each kind of copy goes
into buffers that are kept. Saves at every SPEC.interval-th step into FOLDER, where the newest two
stay; one that is not written yet when the next is due is awaited. Prints lines as `fourfold train
--json` and its metrics.jsonl do: one per step, before the save at its end, and one per checkpoint
with what it cost. The saved state is what fourfold saves of an fp32 run: master weights and both
moments, 12 bytes a parameter.
"""

import json
import os
import shutil
import sys
import time
import warnings

import torch.distributed.checkpoint as dcp
from pytorch_step import Training
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

KEEP_LATEST = 2


def say(**line):
    print(json.dumps(line), flush=True)


def thread_cpu_seconds(thread):
    """CPU time of any thread of this process: Linux makes the clock's number of the thread's."""
    per_thread, scheduler = 4, 2
    try:
        return time.clock_gettime((~thread << 3) | per_thread | scheduler)
    except OSError:  # The thread has ended.
        return 0.0


class CpuOfCheckpoints:
    """Whatever threads come after the first steps are checkpoints' (the main thread and the pool of
    the operators are there by then); inside a call for a checkpoint the first ones' time counts
    too."""

    def __init__(self):
        self.known = [int(name) for name in os.listdir("/proc/self/task")]
        self.inside = 0.0  # Of the known ones, in calls for checkpoints.
        self.before = time.process_time() - self.of_known()

    def of_known(self):
        return sum(thread_cpu_seconds(thread) for thread in self.known)

    def total(self):
        return time.process_time() - self.of_known() - self.before + self.inside


class Save:
    """One checkpoint under way."""

    def __init__(self, step, folder):
        self.step, self.folder = step, folder
        self.begin = time.perf_counter()
        self.held = 0.0
        self.copied = self.ended = None
        self.over = False
        self.staging = self.upload = None


class Checkpoints:
    def __init__(self, training, mode, folder):
        self.mode, self.folder = mode, folder
        self.interval = training.spec["interval"]
        self.training = training
        self.folders = []
        self.pending = None
        self.held = 0.0  # Main thread, since last asked.
        self.cpu = None
        self.cpu_reported = 0.0
        # Neither pinned nor shared memory nor streams: there is no accelerator.
        options = StagingOptions(False, False, mode == "staged", False)
        self.stager = DefaultStager(options) if mode in ("async", "staged") else None

    def state(self):
        named = dict(self.training.model.named_parameters())
        moments = self.training.optimizer.state
        state = {"model": {name: p.detach() for name, p in named.items()}}
        for kind in ("exp_avg", "exp_avg_sq"):
            state[kind] = {name: moments[p][kind] for name, p in named.items()}
        return state

    def hold(self, save, call):
        """Runs `call` in the main thread, which counts as held up by `save`."""
        begin, known = time.perf_counter(), self.cpu.of_known()
        call()
        self.cpu.inside += self.cpu.of_known() - known
        seconds = time.perf_counter() - begin
        save.held += seconds
        self.held += seconds

    def before_update(self):
        if self.pending and self.pending.staging:
            self.hold(self.pending, self.pending.staging.result)

    def take_held(self):
        """Seconds that the main thread was held up since the last call."""
        held, self.held = self.held, 0.0
        return held

    def boundary(self, step):
        if self.pending and self.pending.upload.done():
            self.report()
        if self.mode != "off" and step % self.interval == 0:
            if self.pending:  # One at a time: the buffers are not free before.
                self.finish()
            self.start(step)

    def start(self, step):
        if not self.cpu:
            self.cpu = CpuOfCheckpoints()
        self.pending = save = Save(step, os.path.join(self.folder, f"step-{step:08d}"))
        self.folders.append(save.folder)
        if self.mode == "sync":
            self.hold(save, lambda: self.save(save))
            self.report()
        else:
            self.hold(save, lambda: self.save_async(save))

    def save(self, save):
        save.copied = save.begin
        dcp.save(self.state(), checkpoint_id=save.folder, no_dist=True)
        self.ended(save)

    def save_async(self, save):
        begun = dcp.async_save(
            self.state(), checkpoint_id=save.folder, async_stager=self.stager, no_dist=True
        )
        if self.mode == "staged":
            save.staging, save.upload = begun.staging_completion, begun.upload_completion
            save.staging.add_done_callback(lambda _: self.copied(save))
        else:
            save.upload = begun
            self.copied(save)
        save.upload.add_done_callback(lambda _: self.ended(save))

    def copied(self, save):
        save.copied = time.perf_counter()

    def ended(self, save):
        save.ended = time.perf_counter()
        while len(self.folders) > KEEP_LATEST:
            shutil.rmtree(self.folders.pop(0))
        save.over = True

    def finish(self):
        if self.pending:
            self.hold(self.pending, self.pending.upload.result)
            self.report()

    def report(self):
        save, self.pending = self.pending, None
        if save.upload:
            save.upload.result()
            while not save.over:  # The future is done a little before its callbacks are.
                time.sleep(0.001)
        cpu = self.cpu.total()
        size = sum(t.nbytes for kind in self.state().values() for t in kind.values())
        say(
            step=save.step,
            checkpoint=os.path.basename(save.folder),
            bytes=size,
            copy_seconds=save.copied - save.begin,
            write_seconds=save.ended - save.copied,
            held_seconds=save.held,
            cpu_seconds=cpu - self.cpu_reported,
        )
        self.cpu_reported = cpu


def main():
    warnings.simplefilter("ignore")  # It says at every save that there is one process.
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    training = Training(spec)
    checkpoints = Checkpoints(training, sys.argv[2], sys.argv[3])
    for step in range(1, spec["steps"] + 1):
        begin = time.perf_counter()
        loss = training.step(step - 1, checkpoints.before_update).item()
        seconds = time.perf_counter() - begin
        held = checkpoints.take_held()
        say(step=step, loss=loss, step_seconds=seconds, checkpoint_seconds=held)
        checkpoints.boundary(step)
    checkpoints.finish()
    if checkpoints.stager:
        checkpoints.stager.close()


if __name__ == "__main__":
    main()
