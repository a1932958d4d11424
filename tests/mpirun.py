"""How the tests that are scripts start processes under mpirun, and why they cannot."""

import re
import shutil
import subprocess

MPIRUN = ["mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n"]


def missing(program):
    """Why the program does not run under mpirun here; None where it does."""
    if not shutil.which("mpirun"):
        return "there is no mpirun"
    version = subprocess.run([program, "version"], capture_output=True, text=True, check=True)
    return None if re.search(r"(?m)^MPI\s+in\b", version.stdout) else "this build has no MPI"
