"""The project's rules that can be checked by reading its files.

usage: tidy_test.py
"""

import ast
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import counted  # noqa: E402

# Folder of src: what it may include besides itself (docs/architecture.md).
PURE = ["base", "layout", "spec", "policy"]
LAYERS = ["base", "layout", "policy", "device", "kernels", "comm"]
MAY_INCLUDE = {
    "base": [],
    "layout": ["base"],
    "spec": ["base", "layout"],
    "policy": ["base", "layout", "spec"],
    "formats": ["base"],
    "plan": PURE,
    "device": ["base"],
    "kernels": ["base", "device"],
    "comm": ["base", "layout", "device"],
    "parallel": LAYERS,
    "model": LAYERS + ["parallel", "spec"],
    "data": ["base", "spec", "formats"],
    "optim": ["base", "layout", "kernels", "comm", "device"],
    "ckpt": PURE + ["formats", "device", "comm"],
    "train": LAYERS + ["spec", "formats", "plan", "parallel", "model", "data", "optim", "ckpt"],
}
MAY_INCLUDE["cli"] = list(MAY_INCLUDE)

MAX_LINE, MAX_FUNCTION, MAX_FILE = 100, 70, 400
SLOW_HEADERS = ["ATen/ATen.h", "torch/torch.h", "torch/csrc/autograd/custom_function.h",
                "torch/csrc/autograd/"]
AUTOGRAD_WRAPPER = "src/parallel/autograd.cc"  # The one file that may include autograd's.
# Mutable data that no context can carry, and why.
STATIC_ALLOWED = {
    "src/device/caching_allocator.cc": "free lists belong to threads; LibTorch has one allocator",
    "src/formats/tensorboard.cc": "writers of one process and second need names that differ",
}
CODE = {".cc", ".h"}


def tracked():
    """Files of the checkout, also those not yet committed."""
    listing = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in listing.stdout.splitlines()]
    return [p for p in paths if p.is_file()]


FILES = tracked()
TEXTS = {p: p.read_text(encoding="utf-8") for p in FILES
         if p.suffix in CODE | {".py", ".sh", ".cmake", ".txt", ".md", ".toml"} or
         p.name in ("run", "CMakeLists.txt")}
SOURCES = [p for p in TEXTS if p.suffix in CODE]


def name(path):
    return str(path.relative_to(ROOT))


def cxx_functions(text):
    """(first line, length) of what looks like a function definition in formatted C++."""
    lines = text.splitlines()
    control = re.compile(r"^\s*(if|for|while|switch|else|do|try|namespace|class|struct|enum|union|"
                         r"extern|return|\}|#)\b|^\s*\}")
    for at, line in enumerate(lines):
        if not line.endswith("{") or ")" not in line:
            continue
        first = at
        while first > 0 and re.match(r"^\s{4,}\S|^\s*:", lines[first]) and \
                lines[first - 1].strip() and not lines[first - 1].endswith((";", "{", "}")):
            first -= 1
        if control.match(lines[first]) or "(" not in " ".join(lines[first:at + 1]):
            continue
        indent = re.match(r"\s*", lines[first]).group()
        end = next((i for i in range(at + 1, len(lines))
                    if lines[i].startswith(indent + "}")), at)
        yield first + 1, end - first + 1


class Tidy(unittest.TestCase):
    def check(self, problems):
        if problems:
            self.fail("\n" + "\n".join(problems))

    def test_includes_follow_the_table(self):
        problems = []
        for path in SOURCES:
            parts = path.relative_to(ROOT).parts
            if parts[0] != "src":
                continue
            folder = parts[1]
            if folder not in MAY_INCLUDE:
                problems.append(f"{name(path)}: folder {folder} is not in the table")
                continue
            for included in re.findall(r'#include "([^"/]+)/', TEXTS[path]):
                if included != folder and included not in MAY_INCLUDE[folder]:
                    problems.append(f"{name(path)}: {folder} may not include {included}")
        self.check(problems)

    def test_lines_and_files_are_short(self):
        problems = []
        for path, text in TEXTS.items():
            if path.suffix in {".md", ".txt", ".toml"} and path.name != "CMakeLists.txt":
                continue
            lines = text.splitlines()
            if len(lines) > MAX_FILE:
                problems.append(f"{name(path)}: {len(lines)} lines")
            problems += [f"{name(path)}:{i + 1}: {len(line)} characters"
                         for i, line in enumerate(lines)
                         if len(line) > MAX_LINE and "http" not in line]
        self.check(problems)

    def test_functions_are_short(self):
        problems = []
        for path in TEXTS:
            if path.suffix in CODE:
                found = cxx_functions(TEXTS[path])
            elif path.suffix == ".py":
                found = [(n.lineno, n.end_lineno - n.lineno + 1)
                         for n in ast.walk(ast.parse(TEXTS[path]))
                         if isinstance(n, ast.FunctionDef)]
            else:
                continue
            problems += [f"{name(path)}:{line}: a function of {length} lines"
                         for line, length in found if length > MAX_FUNCTION]
        self.check(problems)

    def test_the_function_finder_finds(self):
        body = "\n".join("  x();" for _ in range(80))
        text = f"namespace a {{\n\nint long_one(int a,\n             int b) {{\n{body}\n}}\n\n}}\n"
        self.assertEqual([(3, 83)], list(cxx_functions(text)))

    def test_slow_headers_stay_out(self):
        problems = []
        for path in SOURCES:
            if path.relative_to(ROOT).parts[0] != "src" or "autograd" in path.name:
                continue
            for header in SLOW_HEADERS:
                wraps = name(path) == AUTOGRAD_WRAPPER and header.startswith("torch/csrc/autograd")
                if f"#include <{header}" in TEXTS[path] and not wraps:
                    problems.append(f"{name(path)}: {header}")
        self.check(problems)

    def test_one_reader_of_the_environment(self):
        problems = [name(p) for p in SOURCES if p.relative_to(ROOT).parts[0] == "src" and
                    re.search(r"\bgetenv\s*\(", TEXTS[p]) and name(p) != "src/base/env.cc"]
        self.check(problems)

    def test_backends_are_named_in_comm_and_device_only(self):
        problems = []
        for path in SOURCES:
            parts = path.relative_to(ROOT).parts
            if parts[0] == "src" and parts[1] not in ("comm", "device"):
                if re.search(r"#include <(mpi|nccl|cuda\w*|c10/cuda.*)\.h>", TEXTS[path]):
                    problems.append(name(path))
        self.check(problems)

    def test_no_static_mutable_data(self):
        static = re.compile(r"^\s*(inline\s+)?(static|thread_local)\b(?!.*\b(const|constexpr)\b)"
                            r"(?!_assert)(?!.*\w\s*\()(?!_cast)")
        global_ = re.compile(r"^(std::\w+(<.*>)?|int|bool|double|long|auto)\s+\w+(\{.*\}|\s*=.*)?;")
        problems, needed = [], set()
        for path in SOURCES:
            if path.relative_to(ROOT).parts[0] != "src":
                continue
            found = [f"{name(path)}:{i + 1}: {line.strip()}"
                     for i, line in enumerate(TEXTS[path].splitlines())
                     if static.match(line) or global_.match(line)]
            if found and name(path) in STATIC_ALLOWED:
                needed.add(name(path))
            else:
                problems += found
        problems += [f"{path} is allowed static data and has none"
                     for path in STATIC_ALLOWED if path not in needed]
        self.check(problems)

    def test_no_dead_file(self):
        problems = []
        included = set(re.findall(r'#include "([^"]+)"', "\n".join(TEXTS[p] for p in SOURCES)))
        others = {p: t for p, t in TEXTS.items()}
        for path in FILES:
            parts = path.relative_to(ROOT).parts
            if path.suffix == ".h" and parts[0] in ("src", "tests"):
                inside = str(path.relative_to(ROOT / "src")) if parts[0] == "src" else name(path)
                if inside not in included and path.name not in included:
                    problems.append(f"{name(path)}: no file includes it")
            listing = TEXTS.get(path.parent / "CMakeLists.txt", "")
            globbed = parts[0] == "src" or parts[:2] == ("tests", "unit") or \
                "GLOB" in listing or f"}}{path.suffix}" in listing or "}_test.py" in listing
            if path.suffix in {".cc", ".py", ".sh", ".cmake"} and not globbed:
                word = path.stem if path.suffix in {".py", ".cmake"} else path.name
                if not any(word in t for p, t in others.items() if p != path):
                    problems.append(f"{name(path)}: no file names it")
            if parts[0] == "src" and path.suffix == ".cc" and "_test" in path.name:
                problems.append(f"{name(path)}: tests live in tests/")
        self.check(problems)

    def test_nothing_is_left_to_do(self):
        mark = re.compile("TO" + r"DO|FIX" + r"ME|\bX" + r"XX\b")
        self.check([f"{name(p)}:{i + 1}: {line.strip()}" for p, t in TEXTS.items()
                    for i, line in enumerate(t.splitlines()) if mark.search(line)])

    def test_links_of_the_documentation_lead_somewhere(self):
        problems = []
        for path in TEXTS:
            if path.suffix != ".md":
                continue
            for target in re.findall(r"\]\(([^)#\s]+)", TEXTS[path]):
                if "://" not in target and not (path.parent / target).exists():
                    problems.append(f"{name(path)}: {target}")
        self.check(problems)

    def test_paths_in_the_documentation_exist(self):
        made = ("build/", "data/", "runs/", ".deps/", "checkpoints/")
        problems = []
        for path in TEXTS:
            if path.suffix != ".md" or "decisions" in path.parts:
                continue
            for word in re.findall(r"`((?:\./)?(?:src|tests|docs|configs|tools|benchmarks|cmake)/"
                                   r"[\w./-]+)`", TEXTS[path]):
                word = word.rstrip("/")
                if not word.startswith(made) and not (ROOT / word).exists():
                    problems.append(f"{name(path)}: {word}")
        self.check(problems)

    def test_sources_are_formatted(self):
        tool = shutil.which("clang-format-19")
        if not tool:
            self.skipTest("clang-format-19 is not installed")
        done = subprocess.run([tool, "--dry-run", "--Werror", *map(str, SOURCES)],
                              capture_output=True, text=True, check=False)
        files = sorted({line.split(":")[0] for line in done.stderr.splitlines()
                        if ": error:" in line})
        self.check([f"{f}: clang-format-19 -i would change it" for f in files])


if __name__ == "__main__":
    counted.main()
