"""train, ckpt and what goes wrong with them, as a user sees it.

usage: training_test.py PROGRAM
"""

import json
import os
import shutil
import signal
import subprocess
import time

import harness
from harness import DATA, NO_CHECKPOINT, PROGRAM, SAMPLE, SAVED, USAGE, Case


class Configuration(Case):
    def test_a_missing_run_file(self):
        self.refuse(USAGE, "run file none.toml cannot be read", "train", "none.toml")

    def test_one_rank_of_a_machine_tells_that_it_lacks_the_run_file(self):
        def launched(rank, local):
            return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4",
                    "OMPI_COMM_WORLD_LOCAL_RANK": str(local), "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}

        self.refuse(USAGE, "error: rank 2 on ", "train", "none.toml", **launched(2, 0))
        done = self.run_program("train", "none.toml", **launched(3, 1))
        self.assertEqual((USAGE, ""), (done.returncode, done.stderr))

    def test_a_misspelt_key(self):
        run = self.write_run(more="[trian]\nsteps = 3")
        self.assertIn("[train]", self.refuse(USAGE, r"run.toml:\d+: unknown table", "train", run))
        run = self.write_run()
        hint = self.refuse(USAGE, "unknown key train.stesp", "train", run, "--set", "train.stesp=3")
        self.assertIn("did you mean train.steps?", hint)

    def test_a_wrong_type(self):
        self.refuse(USAGE, "train.steps must be a whole number", "train", self.write_run(),
                    "--set", "train.steps=many")

    def test_what_is_not_built_yet(self):
        self.refuse(USAGE, "is not built yet", "train", self.write_run(), "--set",
                    "parallel.plan=auto")

    def test_heads_that_do_not_divide(self):
        hint = self.refuse(USAGE, "3 heads cannot be cut over x = 2", "train", self.write_run(x=2))
        self.assertIn("1, 3", hint)

    def test_a_batch_that_does_not_divide(self):
        hint = self.refuse(USAGE, "no multiple of micro_batch", "train", self.write_run(),
                           "--set", "train.global_batch=5")
        self.assertIn("4 or 6", hint)

    def test_experts_that_cannot_be(self):
        def hint(cause, *settings):
            sets = [word for setting in settings for word in ("--set", "model.moe." + setting)]
            return self.refuse(USAGE, cause, "train", self.write_run(), *sets)

        self.assertIn("lower model.moe.top_k",
                      hint("a token cannot take 5 of 4 experts", "experts=4", "top_k=5"))
        self.assertIn("lower one of them",
                      hint("leave none", "experts=4", "first_dense=100"))
        self.assertIn("give model.moe.experts", hint("the model has no experts", "top_k=1"))
        self.assertIn("\"sequence\" or \"microstep\"",
                      hint("over the step before", "experts=4", "capacity_factor=1",
                           "balance_scope=step"))

    def test_experts_that_the_grid_cannot_spread(self):
        def hint(cause, *sets):
            words = [word for setting in sets for word in ("--set", setting)]
            return self.refuse(USAGE, cause, "train", self.write_run(), *words)

        self.assertIn("can be 1, 2", hint("expert = 3 neither divides z = 2 nor",
                                          "model.moe.experts=4", "parallel.expert=3"))
        self.assertIn("at most 4", hint("4 experts cannot be spread over 5 ranks",
                                        "model.moe.experts=4", "parallel.expert=5"))
        self.assertIn("give model.moe.experts", hint("has no experts", "parallel.expert=2"))

    def test_an_emulated_network_needs_a_machine(self):
        run = self.write_run()
        self.refuse(USAGE, "machine.file is not given", "train", run, "--set", "comm.emulate=true")
        self.refuse(USAGE, "nowhere.toml cannot be read", "train", run, "--set",
                    "comm.emulate=true", "--set", "machine.file=nowhere.toml")

    def test_more_ranks_than_the_grid(self):
        self.refuse(USAGE, "is 2 ranks, but 6", "train", self.write_run(), "--ranks", "6")


class Data(Case):
    def copy(self):
        for suffix in (".bin", ".idx"):
            shutil.copy(f"{SAMPLE}{suffix}", self.folder / f"mine{suffix}")
        return self.write_run(train=self.folder / "mine")

    def test_missing_data(self):
        self.refuse(DATA, "nowhere", "train", self.write_run(train="nowhere"))

    def test_data_not_given(self):
        self.refuse(USAGE, "data.train", "train", self.write_run(train=""))

    def test_empty_data(self):
        run = self.copy()
        (self.folder / "mine.bin").write_bytes(b"")
        self.refuse(DATA, "mine", "train", run)

    def test_truncated_data(self):
        run = self.copy()
        whole = (self.folder / "mine.bin").read_bytes()
        (self.folder / "mine.bin").write_bytes(whole[:-7])
        self.refuse(DATA, "mine", "train", run)

    def test_an_index_of_another_format(self):
        run = self.copy()
        index = self.folder / "mine.idx"
        index.write_bytes(b"TNTIDX\0\0\0" + index.read_bytes()[9:])
        self.refuse(DATA, "mine.idx", "train", run)

    def test_tokens_beyond_the_vocabulary(self):
        run = self.write_run(vocab=100)
        self.refuse(DATA, "vocab", "train", run)

    def test_a_folder_that_cannot_be_written(self):
        (self.folder / "file").write_text("in the way")
        self.refuse(DATA, "file", "train", self.write_run(), "--run-dir", "file")


class Training(Case):
    def metrics(self, run="runs/run"):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def losses(self, run="runs/run"):
        return {m["step"]: m["loss"] for m in self.metrics(run) if "loss" in m}

    def test_a_run_leaves_what_is_documented(self):
        more = f'valid = "{harness.ROOT}/configs/data/verify-valid"'
        self.succeed("train", self.write_run(more=more, steps=30))
        run = self.folder / "runs" / "run"
        for name in ("config.toml", "log.txt", "metrics.jsonl", "checkpoints/CURRENT",
                     "report.html"):
            self.assertTrue((run / name).exists(), name)
        self.assertIn("steps = 30  # default: 0", (run / "config.toml").read_text())
        steps = [m for m in self.metrics() if "loss" in m]
        self.assertEqual(list(range(1, 31)), [m["step"] for m in steps])
        for key in ("grad_norm", "lr", "tokens", "tokens_per_second", "step_seconds", "mfu"):
            self.assertIn(key, steps[0])
        self.assertIn("checkpoint_seconds", steps[0])
        self.assertTrue(any("val_loss" in m for m in self.metrics()))
        saved = [m for m in self.metrics() if "checkpoint" in m]
        self.assertEqual("step-00000030", saved[-1]["checkpoint"])
        for key in ("bytes", "copy_seconds", "write_seconds", "held_seconds", "cpu_seconds"):
            self.assertGreater(saved[-1][key], 0, key)
        self.assertLess(steps[-1]["loss"], steps[0]["loss"] - 0.1)

    def test_a_timeline_has_every_rank_and_lane(self):
        self.succeed("train", self.write_run(steps=8, save=1, x=3), "--trace", "3")
        folder = self.folder / "runs/run/traces"
        self.assertEqual([f"rank-{r:05}.json" for r in range(6)],
                         sorted(path.name for path in folder.iterdir()))
        for rank, path in enumerate(sorted(folder.iterdir())):
            events = json.loads(path.read_text())["traceEvents"]
            tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
            self.assertLessEqual({"main", "gather z", "reduce x", "scatter z", "snapshot"}, tracks)
            spans = [e for e in events if e["ph"] == "X"]
            self.assertEqual({rank}, {e["pid"] for e in spans})
            steps = [e for e in spans if e["cat"] == "step"]
            self.assertEqual(["step 3", "step 4", "step 5"], [e["name"] for e in steps])
            self.assertLess(steps[0]["ts"] + steps[0]["dur"], steps[1]["ts"] + 1)
            gathered = [e for e in spans if e["name"] == "all_gather z" and "args" in e]
            self.assertGreater(len(gathered), 3)
            self.assertEqual({"compute", "communicate", "wait", "checkpoint", "step"},
                             {e["cat"] for e in spans} | {"wait"})
        report = (self.folder / "runs/run/report.html").read_text()
        self.assertIn("Rank 0, step 5", report)
        self.assertIn("hidden communication", report)

    def test_a_timeline_that_ends_early_is_kept(self):
        done = self.run_program("train", self.write_run(steps=1000000, save=0), "--trace",
                                "1000000", "--set", "train.time_budget_seconds=2")
        self.assertEqual(SAVED, done.returncode, done.stderr)
        events = json.loads((self.folder / "runs/run/traces/rank-00000.json").read_text())
        self.assertGreater(sum(e.get("cat") == "step" for e in events["traceEvents"]), 1)

    def test_a_timeline_of_more_steps_than_there_are(self):
        self.succeed("train", self.write_run(steps=2, save=0), "--trace", "9")
        events = json.loads((self.folder / "runs/run/traces/rank-00001.json").read_text())
        self.assertEqual(["step 1", "step 2"],
                         [e["name"] for e in events["traceEvents"] if e.get("cat") == "step"])

    def test_a_step_is_simulated_from_timelines(self):
        file, run = self.write_run(steps=6, save=0, x=3), self.folder / "runs/run"
        self.succeed("train", file, "--trace", "3")
        simulate = ["simulate", "step", file, "--times", run]
        line = json.loads(self.succeed(*simulate, "--json"))
        self.assertLess(line["seconds"], line["serial_seconds"])
        self.assertAlmostEqual(line["seconds"], line["compute_seconds"] + line["exposed_seconds"])
        self.assertGreater(line["hidden_seconds"], 0)
        off = [word for lane in ("all_reduce", "reduce_scatter", "all_gather")
               for word in ("--set", f"overlap.{lane}=false")]
        alone = json.loads(self.succeed(*simulate, *off, "--json"))
        self.assertAlmostEqual(alone["serial_seconds"], line["serial_seconds"])
        self.assertGreater(alone["seconds"], line["seconds"])
        self.assertIn("one after the other",
                      self.succeed(*simulate, "--trace-out", self.folder / "out.json"))
        events = json.loads((self.folder / "out.json").read_text())["traceEvents"]
        self.assertIn("reduce x", {e["args"]["name"] for e in events if e["name"] == "thread_name"})
        self.refuse(DATA, "no time is known of", *simulate, "--set",
                    "overlap.sequence_parallel=true")
        self.refuse(DATA, "rank-00000.json", "simulate", "step", file, "--times", self.folder)

    def test_a_dry_run_trains_nothing(self):
        text = self.succeed("train", self.write_run(), "--dry-run")
        self.assertIn("memory", text.lower())
        self.assertFalse((self.folder / "runs" / "run" / "checkpoints").exists())

    def test_an_emulated_network_is_said(self):
        machine = harness.ROOT / "configs/machines/two-slow-nodes.toml"
        done = self.succeed("train", self.write_run(steps=2), "--set", "comm.emulate=true", "--set",
                            f"machine.file={machine}")
        self.assertIn("times are no measurements", done)
        self.assertIn("emulated", (self.folder / "runs/run/report.html").read_text())

    def test_open_axes_take_the_ranks(self):
        self.succeed("train", self.write_run(z=-1), "--ranks", "4")
        self.assertIn("z = 4", (self.folder / "runs/run/config.toml").read_text())

    def test_resumed_equals_uninterrupted(self):
        run = self.write_run(steps=6, more='[schedule]\nname = "constant"')
        self.succeed("train", run, "--run-dir", "whole")
        self.succeed("train", run, "--run-dir", "cut", "--set", "train.steps=4")
        self.succeed("train", run, "--run-dir", "cut")
        self.assertEqual(self.losses("whole")[6], self.losses("cut")[6])

    def test_killed_and_started_again(self):
        run = self.write_run(steps=2000, save=5)
        process = subprocess.Popen([PROGRAM, "train", run], cwd=self.folder,
                                   stdout=subprocess.DEVNULL)
        self.wait_for_step(process, 12)
        process.kill()
        process.wait()
        self.succeed("ckpt", "verify", "runs/run")
        end = max(self.losses()) + 8
        done = self.succeed("train", run, "--set", f"train.steps={end}")
        self.assertRegex(done, "resumed at step [0-9]*[05] ")
        self.assertEqual(end, max(self.losses()))

    def test_a_signal_saves_and_ends_with_75(self):
        run = self.write_run(steps=100000, save=0)
        process = subprocess.Popen([PROGRAM, "train", run], cwd=self.folder,
                                   stdout=subprocess.DEVNULL)
        self.wait_for_step(process, 3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(SAVED, process.wait(timeout=60))
        self.assertIn(str(max(self.losses())), self.succeed("ckpt", "ls", "runs/run"))

    def wait_for_step(self, process, step):
        path = self.folder / "runs" / "run" / "metrics.jsonl"
        end = time.monotonic() + harness.SECONDS
        while not path.exists() or path.read_text().count("\n") < step:
            self.assertIsNone(process.poll(), "training ended early")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def test_a_time_budget_ends_with_75(self):
        done = self.run_program("train", self.write_run(steps=1000000), "--set",
                                "train.time_budget_seconds=3")
        self.assertEqual(SAVED, done.returncode, done.stderr)


class Checkpoints(Case):
    def setUp(self):
        super().setUp()
        self.run_file = self.write_run(steps=4, save=2)
        self.succeed("train", self.run_file)

    def flip(self, step):
        folder = self.folder / "runs/run/checkpoints" / f"step-{step:08}"
        path = max(folder.glob("*.safetensors"), key=os.path.getsize)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    def test_looking_at_them(self):
        listed = self.succeed("ckpt", "ls", "runs/run")
        self.assertIn("step-00000002", listed)
        self.assertIn("step-00000004", listed)
        for path in ("runs/run", "runs/run/checkpoints", "runs/run/checkpoints/step-00000004"):
            self.assertIn("model.embed_tokens.weight", self.succeed("ckpt", "show", path))
            self.succeed("ckpt", "verify", path)

    def test_a_flipped_bit_is_found_and_stepped_over(self):
        self.flip(4)
        self.refuse(NO_CHECKPOINT, r"step-00000004.*weight", "ckpt", "verify", "runs/run")
        done = self.run_program("train", self.run_file, "--set", "train.steps=5")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("resumed at step 2 ", done.stdout)
        self.assertRegex(done.stderr, r"warning: .*step-00000004", done.stdout)

    def test_no_checkpoint_is_usable(self):
        self.flip(2)
        self.flip(4)
        self.refuse(NO_CHECKPOINT, ".", "train", self.run_file, "--set", "train.steps=5")

    def test_no_checkpoint_at_all(self):
        self.refuse(DATA, "no-such", "ckpt", "ls", "no-such")
        (self.folder / "empty" / "checkpoints").mkdir(parents=True)
        self.refuse(NO_CHECKPOINT, "empty", "ckpt", "verify", "empty")

    def test_another_grid_goes_on(self):
        self.succeed("train", self.run_file, "--set", "train.steps=6", "--set", "parallel.x=3",
                     "--set", "parallel.z=1")
        self.succeed("ckpt", "verify", "runs/run")


if __name__ == "__main__":
    harness.main()
