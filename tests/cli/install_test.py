"""What `cmake --install` leaves: a program that runs, man pages, a package for examples.

usage: install_test.py PROGRAM
"""

import pathlib
import subprocess

import harness
from harness import PROGRAM, ROOT, Case

BUILD = pathlib.Path(PROGRAM).parents[1]


class Install(Case):
    def call(self, *command):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False,
                              timeout=300)
        self.assertEqual(0, done.returncode, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def test_the_installed_parts_work_together(self):
        prefix = self.folder / "installed"
        self.call("cmake", "--install", BUILD, "--prefix", prefix)
        program = prefix / "bin" / "fourfold"
        self.assertEqual(self.succeed("version"), self.call(program, "version"))
        self.call(program, "train", self.write_run(steps=1, save=0), "--run-dir",
                  self.folder / "run")
        self.assertTrue((prefix / "share" / "man" / "man1" / "fourfold-train.1").exists())
        examples = self.folder / "examples"
        self.call("cmake", "-S", ROOT / "docs" / "examples", "-B", examples, "-G", "Ninja",
                  f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
        self.call("cmake", "--build", examples)
        for example in ("four_ranks", "own_module"):
            self.assertRegex(self.call(examples / example), r"four ranks: \d+\.\d+")


if __name__ == "__main__":
    harness.main()
