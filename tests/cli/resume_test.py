"""What a run goes on from: the place in the data, the rates of the run file, the weights alone.

usage: resume_test.py PROGRAM
"""

import json
import sys

import harness
from harness import NO_CHECKPOINT, ROOT, Case

sys.path.insert(0, str(ROOT / "tools"))
import make_verify_data  # noqa: E402

CONSTANT = '[schedule]\nname = "constant"'  # A learning rate that does not depend on train.steps.
BATCH, SEQ_LEN = 4, 17  # Of the run files that harness writes.


class Resume(Case):
    def train(self, run, folder, steps, *more):
        values = [f"train.steps={steps}", "log.report=false", "log.tensorboard=false", *more]
        return self.succeed("train", run, "--run-dir", folder,
                            *(word for value in values for word in ("--set", value)))

    def records(self, folder):
        """The metrics of each step; of one that was done twice, the later ones."""
        lines = (self.folder / folder / "metrics.jsonl").read_text().splitlines()
        return {m["step"]: m for m in map(json.loads, lines) if "loss" in m}

    def losses(self, folder):
        return {step: m["loss"] for step, m in self.records(folder).items()}

    def next_sample(self, folder):
        shown = self.succeed("ckpt", "show", folder).splitlines()
        return int(next(line for line in shown if line.startswith("next sample")).split()[-1])


class Data(Resume):
    def test_a_cut_before_at_and_behind_an_epochs_end(self):
        windows, steps = 10, 8
        tokens = make_verify_data.document(make_verify_data.Random(3))[:windows * SEQ_LEN + 1]
        make_verify_data.write(self.folder / "short", [tokens])
        run = self.write_run(train="short", save=0, more=CONSTANT)
        self.train(run, "whole", steps)
        # Step 3 takes the last two samples of the first epoch, step 5 ends with the second.
        for cut in (2, 3, 5):
            folder = f"cut-{cut}"
            self.train(run, folder, cut)
            self.assertEqual(cut * BATCH, self.next_sample(folder))
            self.assertIn(f"resumed at step {cut} ", self.train(run, folder, steps))
            self.assertEqual(self.losses("whole"), self.losses(folder))
            self.assertIn("equal: ", self.succeed("ckpt", "diff", "whole", folder))

    def test_more_and_fewer_replicas_take_the_samples_that_come_next(self):
        steps, cut = 6, 3
        run = self.write_run(save=0, more=CONSTANT)
        self.train(run, "whole", steps)
        whole = self.losses("whole")
        for z, data in ((1, 1), (1, 2), (2, 2), (1, 4)):
            folder = f"grid-{z}-{data}"
            self.train(run, folder, cut)
            self.train(run, folder, steps, f"parallel.z={z}", f"parallel.data={data}")
            for step in range(cut + 1, steps + 1):
                self.assertAlmostEqual(whole[step], self.losses(folder)[step], delta=2e-5,
                                       msg=f"step {step} on {folder}")
            self.assertEqual(steps * BATCH, self.next_sample(folder))

    def test_another_batch_goes_on_at_the_sample_that_comes_next(self):
        run = self.write_run(save=0, more=CONSTANT)
        self.train(run, "run", 3)
        self.train(run, "run", 5, "train.global_batch=2")
        self.assertEqual(3 * BATCH + 2 * 2, self.next_sample("run"))


class Rates(Resume):
    def test_the_first_step_takes_those_of_the_run_file(self):
        run = self.write_run(save=0, more=CONSTANT)
        for folder, changed in (("rate", "optimizer.lr=5e-3"), ("none", "optimizer.lr=1e-2"),
                                ("decay", "optimizer.weight_decay=0.7")):
            self.train(run, folder, 3)
            self.train(run, folder, 4, changed)
        self.assertEqual(1e-2, self.records("rate")[3]["lr"])
        self.assertEqual(5e-3, self.records("rate")[4]["lr"])
        # One step of the same gradient: the decay moves the weights that decay, and nothing else.
        text = self.succeed("ckpt", "diff", "none", "decay")
        self.assertIn("model.embed_tokens.weight@master:", text)
        self.assertNotIn("model.norm.weight@", text)
        self.assertNotIn("@exp_avg", text)


class WeightsAlone(Resume):
    def damage(self, kind):
        """A flipped bit in each region of a kind, in all files; how many."""
        damaged = 0
        for path in self.folder.glob("runs/run/checkpoints/step-*/*.safetensors"):
            data = bytearray(path.read_bytes())
            first = 8 + int.from_bytes(data[:8], "little")
            for name, entry in json.loads(data[8:first]).items():
                begin, end = entry.get("data_offsets", (0, 0))
                if f"@{kind}[" in name and begin < end:
                    data[first + begin] ^= 1
                    damaged += 1
            path.write_bytes(data)
        return damaged

    def test_generating_reads_no_moments(self):
        (self.folder / "my.txt").write_text(harness.words_text(6000))
        self.succeed("data", "tokenizer", "--input", "my.txt", "--vocab", "280", "--output",
                     "t.json")
        self.succeed("data", "prepare", "--input", "my.txt", "--tokenizer", "t.json", "--output",
                     "my")
        run = self.write_run(vocab=280, train="my", steps=2, save=0, more='tokenizer = "t.json"')
        self.train(run, "runs/run", 2)
        say = ["generate", "--run-dir", "runs/run", "--prompt", "the quick", "--max-tokens", "8",
               "--temperature", "0"]
        before = self.succeed(*say)
        self.assertGreater(self.damage("exp_avg") + self.damage("exp_avg_sq"), 10)
        self.assertEqual(before, self.succeed(*say))
        # Going on needs them.
        self.refuse(NO_CHECKPOINT, "@exp_avg", "train", run, "--set", "train.steps=3")
        self.damage("master")
        self.refuse(NO_CHECKPOINT, "@master", *say)


if __name__ == "__main__":
    harness.main()
