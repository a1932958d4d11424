"""The command line itself: help, manuals, mistakes. Needs the program alone.

usage: usage_test.py PROGRAM
"""

import re
import shutil
import subprocess
import time
import unittest

import harness
from harness import ROOT, USAGE, Case

COMMANDS = ["train", "verify", "generate", "data tokenizer", "data prepare", "data show", "ckpt ls",
            "ckpt show", "ckpt verify", "ckpt diff", "ckpt reshard", "ckpt upcycle", "ckpt import",
            "ckpt export", "ckpt plan", "simulate step", "version"]


class Help(Case):
    def test_overview_names_every_command_and_exit_code(self):
        text = self.succeed("--help")
        for word in COMMANDS + ["75", "128+n"]:
            self.assertRegex(text, rf"(?m)^  {re.escape(word)}\s")
        self.assertNotIn("docs ", text)

    def test_each_command_says_purpose_options_and_example(self):
        for command in COMMANDS:
            text = self.succeed(*command.split(), "--help")
            for part in (f"fourfold {command}: ", "Usage: fourfold ", "Options:\n", "Example:\n  "):
                self.assertIn(part, text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_help_wins_over_what_is_missing(self):
        self.assertIn("Usage", self.succeed("train", "--help"))
        self.assertIn("data prepare", self.succeed("data", "--help"))
        self.assertNotIn("train ", self.succeed("data", "--help").split("Commands:")[1][:200])

    def test_help_is_quick(self):
        seconds = []
        for _ in range(10):
            begin = time.monotonic()
            self.succeed("--help")
            seconds.append(time.monotonic() - begin)
        self.assertLess(min(seconds), 0.05)

    def test_version_says_what_is_in(self):
        text = self.succeed("version")
        for part in ("fourfold", "commit", "compiler", "LibTorch", "MPI", "NCCL", "CUDA", "CPU"):
            self.assertRegex(text, rf"(?m)^{part}\s+\S")
        self.assertEqual(text, self.succeed("--version"))


class Mistakes(Case):
    def test_unknown_words(self):
        self.assertIn("did you mean train?", self.refuse(USAGE, "unknown command trian", "trian"))
        self.assertIn("did you mean --ranks?",
                      self.refuse(USAGE, "unknown option --rnaks", "train", "a", "--rnaks", "3"))
        self.assertIn("did you mean prepare?",
                      self.refuse(USAGE, "unknown command prepre", "data", "prepre"))
        self.refuse(USAGE, "unknown argument b.toml", "train", "a.toml", "b.toml")

    def test_missing_words(self):
        self.refuse(USAGE, "no command")
        self.refuse(USAGE, "no command", "ckpt")
        self.refuse(USAGE, "FILE is required", "train")
        self.refuse(USAGE, "--ranks", "train", "a.toml", "--ranks")
        self.refuse(USAGE, "one of --run-dir and --checkpoint", "generate", "--prompt", "x")

    def test_wrong_values(self):
        self.refuse(USAGE, "--ranks must be a whole number", "train", "a", "--ranks", "many")
        self.refuse(USAGE, "--ranks must be a whole number", "train", "a", "--ranks", "-2")
        self.refuse(USAGE, "--top-p must be a number from 0 to 1", "generate", "--run-dir", "r",
                    "--top-p", "1.5")
        self.refuse(USAGE, "--vocab must be", "data", "tokenizer", "--input", "a", "--vocab", "12",
                    "--output", "t")

    def test_one_rank_tells_a_usage_error(self):
        done = self.run_program("trian", OMPI_COMM_WORLD_RANK="1",
                                OMPI_COMM_WORLD_SIZE="2")
        self.assertEqual((USAGE, ""), (done.returncode, done.stderr))
        self.refuse(USAGE, "unknown command", "trian", OMPI_COMM_WORLD_RANK="0",
                    OMPI_COMM_WORLD_SIZE="2")


class Documentation(Case):
    def test_generated_pages_are_current(self):
        for page in ("config", "cli"):
            self.succeed("docs", page, self.folder)
            made = (self.folder / f"{page}.md").read_text()
            self.assertEqual(made, (ROOT / "docs" / f"{page}.md").read_text(),
                             f"run tools/make_docs.sh: docs/{page}.md is not current")

    def test_every_command_has_a_man_page(self):
        self.succeed("docs", "man", self.folder)
        names = {p.stem for p in self.folder.glob("*.1")}
        self.assertEqual({"fourfold"} | {"fourfold-" + c.replace(" ", "-") for c in COMMANDS},
                         names)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_man_pages_are_sound_troff(self):
        self.succeed("docs", "man", self.folder)
        for page in self.folder.glob("*.1"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Kutf8", page],
                                  capture_output=True, text=True, check=True)
            self.assertEqual("", done.stderr)

    def test_sample_tokens_are_current(self):
        subprocess.run(["python3", ROOT / "tools" / "make_verify_data.py", self.folder], check=True)
        for made in self.folder.iterdir():
            kept = ROOT / "configs" / "data" / made.name
            self.assertEqual(made.read_bytes(), kept.read_bytes(), made.name)


if __name__ == "__main__":
    harness.main()
