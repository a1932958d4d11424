"""From a text file to generated text: data, train, generate, verify.

usage: text_test.py PROGRAM
"""

import json

import harness
from harness import DATA, USAGE, Case

TEXT = harness.words_text(4000)


class Text(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "text.txt").write_text(TEXT)

    def prepare(self):
        self.succeed("data", "tokenizer", "--input", "text.txt", "--vocab", "300", "--output",
                     "tokenizer.json")
        self.succeed("data", "prepare", "--input", "text.txt", "--tokenizer", "tokenizer.json",
                     "--output", "text", "--valid-fraction", "0.1")
        return self.write_run(train="text-train", vocab=300, steps=30,
                              more='valid = "text-valid"\ntokenizer = "tokenizer.json"')

    def test_from_text_to_text(self):
        run = self.prepare()
        self.assertIn("brown", self.succeed("data", "show", "text-train", "--tokenizer",
                                            "tokenizer.json"))
        self.succeed("data", "show", "text-valid.idx", "--tokens", "5")
        self.succeed("train", run)
        ask = ["generate", "--run-dir", "runs/run", "--prompt", "the quick", "--max-tokens", "12"]
        first = self.succeed(*ask, "--seed", "7")
        self.assertEqual(first, self.succeed(*ask, "--seed", "7"))
        self.assertIn("the quick", first)
        greedy = self.succeed(*ask, "--temperature", "0")
        self.assertEqual(greedy, self.succeed(*ask, "--top-k", "1"))
        self.assertEqual(greedy, self.succeed("generate", "--checkpoint", "runs/run/checkpoints",
                                              *ask[3:], "--temperature", "0", "--top-p", "0.9"))

    def test_a_tokenizer_that_does_not_match(self):
        run = self.prepare()
        (self.folder / "other.txt").write_text("".join(sorted(set(TEXT))) * 40 + TEXT[::-1])
        self.succeed("data", "tokenizer", "--input", "other.txt", "--vocab", "300", "--output",
                     "tokenizer.json")
        self.refuse(DATA, "tokenizer", "train", run)

    def test_inputs_that_cannot_be_read(self):
        self.refuse(DATA, "missing.txt", "data", "tokenizer", "--input", "missing.txt", "--vocab",
                    "300", "--output", "t.json")
        (self.folder / "empty.txt").write_text("")
        self.refuse(DATA, "empty", "data", "tokenizer", "--input", "empty.txt", "--vocab", "300",
                    "--output", "t.json")
        self.refuse(DATA, "none.json", "data", "prepare", "--input", "text.txt", "--tokenizer",
                    "none.json", "--output", "p")
        (self.folder / "bad.json").write_text('{"model": 3}')
        self.refuse(DATA, "bad.json", "data", "prepare", "--input", "text.txt", "--tokenizer",
                    "bad.json", "--output", "p")
        self.refuse(DATA, "nothing", "data", "show", "nothing")

    def test_generate_without_a_run(self):
        self.refuse(DATA, "nowhere", "generate", "--run-dir", "nowhere", "--prompt", "x")
        self.refuse(USAGE, "one of", "generate", "--run-dir", "a", "--checkpoint", "b")


class Verify(Case):
    def test_grids_agree_with_one_rank(self):
        run = self.write_run(more="", steps=4)
        text = self.succeed("verify", run, "--set", "train.global_batch=12", "--json")
        cases = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        done = [c for c in cases if "passed" in c]
        self.assertTrue(all(c["passed"] and c["initial_weights_equal"] for c in done))
        self.assertIn("3x2x1x1", [c["grid"] for c in done])
        self.assertIn("skipped", str(cases))  # 3 heads do not divide by 2.

    def test_the_run_files_of_the_checkout(self):
        for name in ("verify-gpt", "verify-llama"):
            text = self.succeed("verify", harness.ROOT / "configs" / f"{name}.toml")
            self.assertRegex(text, r"26 of 26 within tolerance")


if __name__ == "__main__":
    harness.main()
