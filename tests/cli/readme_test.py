"""Runs every command of README.md and docs/cookbook.md.

usage: readme_test.py PROGRAM
"""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import harness
from harness import PROGRAM, ROOT, Case

BUILD = pathlib.Path(PROGRAM).parents[1]
QUICKSTART_STEPS = 10
# Commands that are run in another form, or are running: ./test.sh runs this.
REPLACED = {
    # In the checkout, since it builds; its run and data are then as if they were here.
    "./quickstart.sh": f"here=$PWD; cd {ROOT} && ./quickstart.sh --steps {QUICKSTART_STEPS} "
                       f"--run-dir $here/runs/quickstart && ln -s {ROOT}/data $here/data",
    "./test.sh": ":",
    "fourfold train my.toml": "fourfold train my.toml --set log.report=false",
}


def shell_lines(page):
    """Lines of the page's ```sh blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.S)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


class Readme(Case):
    def setUp(self):
        """A folder that looks like the root of the checkout, with runs/ and data/ of its own."""
        super().setUp()
        for entry in ROOT.iterdir():
            if entry.name not in ("build", "runs", "data", ".git"):
                (self.folder / entry.name).symlink_to(entry)
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(BUILD)

    def run_lines(self, lines):
        environment = {
            **os.environ,
            "PATH": f"{pathlib.Path(PROGRAM).parent}:{os.environ['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }
        for line in lines:
            command = REPLACED.get(line, line)
            done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment,
                                  capture_output=True, text=True, errors="replace",
                                  check=False, timeout=500)
            self.assertEqual(0, done.returncode, f"{command}\n{done.stdout}\n{done.stderr}")

    @unittest.skipUnless(BUILD.name == "release", "quickstart.sh uses the release build")
    @unittest.skipUnless(shutil.which("bible"), "the bible-kjv package is not installed")
    def test_commands_of_the_readme(self):
        lines = shell_lines("README.md")
        self.assertEqual("./quickstart.sh", lines[0])
        if not shutil.which("mpirun"):
            lines = [line for line in lines if not line.startswith("mpirun")]
        self.run_lines(lines)
        self.assertTrue((self.folder / "runs/quickstart/report.html").exists())

    def test_commands_of_the_cookbook(self):
        (self.folder / "my.txt").write_text(harness.words_text(20000))
        page = (ROOT / "docs" / "cookbook.md").read_text()
        (self.folder / "my.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.S)[1])
        (self.folder / "data").mkdir()
        self.run_lines(shell_lines("docs/cookbook.md"))


if __name__ == "__main__":
    harness.main()
