"""ckpt diff, reshard, import, export and plan, as a user sees them.

usage: convert_test.py PROGRAM
"""

import json

import harness
from harness import DATA, NO_CHECKPOINT, SAMPLE, USAGE, Case

GPT2 = {"model_type": "gpt2", "n_layer": 1, "n_embd": 12, "n_head": 3, "vocab_size": 20,
        "n_positions": 8}


class Convert(Case):
    def train(self, **values):
        self.succeed("train", self.write_run(**values), "--set", "log.report=false")
        return self.folder / "runs" / "run"

    def test_another_grid_goes_on_from_the_same_bits(self):
        run = self.train()
        self.assertIn("from 1x1x2x1 to 3x1x1x1", self.succeed(
            "ckpt", "reshard", run, "cut", "--grid", "3,1,1,1,1"))
        self.assertEqual(3, len(list(self.folder.glob("cut/checkpoints/step-*/rank-*"))))
        self.assertIn("ok, step 4", self.succeed("ckpt", "verify", "cut"))
        self.assertIn("equal: ", self.succeed("ckpt", "diff", run, "cut"))
        self.succeed("train", "cut/config.toml", "--set", "train.steps=5",
                     "--set", "log.report=false")
        text = self.succeed("ckpt", "diff", run, "cut")
        self.assertIn("step: 4 and 5", text)
        self.assertRegex(text, r"model\.norm\.weight@master: \d+ of 33 elements, max \|a-b\|")

    def test_exported_and_imported_is_the_same_model(self):
        run = self.train()
        self.assertIn("as GPT-2", self.succeed("ckpt", "export", run, "hf", "--max-shard-size",
                                               "20KB"))
        index = json.loads((self.folder / "hf" / "model.safetensors.index.json").read_text())
        self.assertGreater(len(set(index["weight_map"].values())), 1)
        self.succeed("ckpt", "import", "hf", "again", "--set", "train.steps=2",
                     "--set", f"data.train={SAMPLE}", "--set", "train.global_batch=2")
        text = self.succeed("ckpt", "diff", run, "again")
        self.assertIn("step: 4 and 0", text)
        self.assertNotRegex(text, "@(master|weight)")
        self.assertIn("model.norm.weight@exp_avg:", text)
        self.succeed("train", "again/config.toml", "--set", "log.report=false")
        self.assertIn("step              2", self.succeed("ckpt", "show", "again"))

    def test_the_tokenizer_goes_along(self):
        (self.folder / "my.txt").write_text(harness.words_text(6000))
        self.succeed("data", "tokenizer", "--input", "my.txt", "--vocab", "280", "--output",
                     "t.json")
        self.succeed("data", "prepare", "--input", "my.txt", "--tokenizer", "t.json", "--output",
                     "my")
        run = self.train(vocab=280, train="my", more='tokenizer = "t.json"')
        self.succeed("ckpt", "export", run, "hf", "--dtype", "fp32")
        self.assertIn("eos_token", (self.folder / "hf" / "tokenizer_config.json").read_text())
        self.succeed("ckpt", "import", "hf", "again")
        say = ("--prompt", "the quick", "--max-tokens", "8", "--temperature", "0")
        self.assertEqual(self.succeed("generate", "--run-dir", run, *say),
                         self.succeed("generate", "--run-dir", "again", *say))

    def test_experts_of_whole_mlps_say_what_the_mlp_said(self):
        (self.folder / "my.txt").write_text(harness.words_text(6000))
        self.succeed("data", "tokenizer", "--input", "my.txt", "--vocab", "280", "--output",
                     "t.json")
        self.succeed("data", "prepare", "--input", "my.txt", "--tokenizer", "t.json", "--output",
                     "my")
        run = self.train(vocab=280, train="my", more='tokenizer = "t.json"')
        self.assertIn("active)", self.succeed("ckpt", "upcycle", run, "experts", "--set",
                                              "model.moe.experts=4"))
        say = ("--prompt", "the quick", "--max-tokens", "8", "--temperature", "0")
        self.assertEqual(self.succeed("generate", "--run-dir", run, *say),
                         self.succeed("generate", "--run-dir", "experts", *say))
        self.assertIn("step 0", self.succeed("ckpt", "verify", "experts"))
        text = self.succeed("train", "experts/config.toml", "--set", "train.steps=1", "--set",
                            "log.report=false", "--json")
        loss = next(json.loads(line)["loss"] for line in text.splitlines() if "grad_norm" in line)
        self.assertLess(loss, 5.63)  # ln 280: what a new model says.

    def test_experts_of_parts_of_mlps_train(self):
        run = self.train()
        self.succeed("ckpt", "upcycle", run, "parts", "--set", "model.moe.experts=4",
                     "--set", "model.moe.ffn=25", "--set", "model.moe.top_k=2")
        self.succeed("train", "parts/config.toml", "--set", "train.steps=1", "--set",
                     "log.report=false")
        upcycle = ("ckpt", "upcycle", run, "o")
        self.refuse(USAGE, "no experts are asked for", *upcycle)
        self.refuse(USAGE, "cannot be cut from an MLP", *upcycle, "--set", "model.moe.experts=4",
                    "--set", "model.moe.ffn=21")
        self.refuse(USAGE, "in more than its experts", *upcycle, "--set", "model.moe.experts=4",
                    "--set", "model.hidden=66")
        self.refuse(USAGE, "must sum to 1", *upcycle, "--set", "model.moe.experts=4", "--set",
                    "model.moe.renormalise=false")
        self.refuse(USAGE, "has experts already", "ckpt", "upcycle", "parts", "o", "--set",
                    "model.moe.experts=2")

    def test_mistakes(self):
        run = self.train()
        self.refuse(USAGE, "--grid must be x,y,z,data,expert", "ckpt", "reshard", run, "o",
                    "--grid", "2,1,1")
        self.refuse(USAGE, "the model has no experts", "ckpt", "reshard", run, "o",
                    "--grid", "1,1,1,1,2")
        self.assertIn("1, 3", self.refuse(USAGE, "3 heads cannot be cut over x = 2", "ckpt",
                                          "reshard", run, "o", "--grid", "2,1,1,1,1"))
        self.refuse(USAGE, "is a run already", "ckpt", "reshard", run, run, "--grid", "1,1,1,1,1")
        self.refuse(USAGE, "is there and not empty", "ckpt", "export", run, ".")
        self.refuse(USAGE, "--dtype \"fp8\"", "ckpt", "export", run, "o", "--dtype", "fp8")
        self.refuse(USAGE, "is no size", "ckpt", "export", run, "o", "--max-shard-size", "big")
        self.refuse(DATA, "is not a folder", "ckpt", "export", "nowhere", "o")
        self.refuse(DATA, "is not a folder", "ckpt", "diff", run, "nowhere")
        self.refuse(DATA, "config.json", "ckpt", "import", "nowhere", "o")
        (self.folder / "empty").mkdir()
        self.refuse(NO_CHECKPOINT, "no checkpoint", "ckpt", "export", "empty", "o")
        self.assertFalse((self.folder / "o").exists())

    def test_models_that_cannot_be_imported(self):
        folder = self.folder / "hf"
        folder.mkdir()
        for change, cause in (({"model_type": "mistral"}, "model_type = \"mistral\" is not built"),
                              ({"activation_function": "relu"}, "activation_function = \"relu\""),
                              ({"n_head": 5}, "n_head 5 does not divide n_embd 12"),
                              ({}, "neither model.safetensors nor")):
            (folder / "config.json").write_text(json.dumps({**GPT2, **change}))
            self.refuse(DATA, cause, "ckpt", "import", folder, "o")
        self.refuse(USAGE, "unknown key train.stesp", "ckpt", "import", folder, "o", "--set",
                    "train.stesp=1")


class Plan(Case):
    def test_bytes_are_exact(self):
        text = self.succeed("ckpt", "plan", "--preset", "gpt2-124m", "--precision", "bf16")
        self.assertRegex(text, r"total +1,742,157,312 bytes")
        plan = json.loads(self.succeed("ckpt", "plan", "--preset", "gpt2-124m", "--json"))
        self.assertEqual(12 * 124439808, plan["total"])
        self.assertEqual(0, plan["dense"]["weight"])
        self.assertEqual(0, plan["expert"]["master"])

    def test_experts_are_a_class_of_their_own(self):
        say = ("ckpt", "plan", "--preset", "gpt-125m-8e", "--precision", "bf16")
        text = self.succeed(*say)
        self.assertRegex(text, r"(?m)^expert weight +453,353,472 bytes")
        self.assertRegex(text, r"total +4,519,968,768 bytes")
        plan = json.loads(self.succeed(*say, "--json"))
        self.assertEqual(4 * 226676736, plan["expert"]["master"])
        self.assertEqual(4 * 96178176, plan["dense"]["master"])

    def test_mistakes(self):
        self.assertIn("gpt2-124m", self.refuse(USAGE, "no preset \"gpt2-124\"", "ckpt", "plan",
                                               "--preset", "gpt2-124"))
        self.refuse(USAGE, "--precision", "ckpt", "plan", "--preset", "gpt-6m", "--precision", "x")
        for option, value in (("--k", 4), ("--scope", "moments"), ("--dp", 2), ("--ep", 2)):
            self.refuse(USAGE, f"{option} is not built yet", "ckpt", "plan", "--preset", "gpt-6m",
                        option, value)


if __name__ == "__main__":
    harness.main()
