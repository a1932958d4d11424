"""Runs tests that CTest knows and sums their cases.

usage: run_tests.py [--suite BUILD LABELS PATTERN]...

Each suite is a build folder, labels separated by commas, and a regular expression on test names.
GoogleTest binaries count case by case; other tests count by their last line "N passed, N failed,
N skipped", or as one case (exit code 77 or SKIP_RETURN_CODE: skipped). What fails is printed whole.
Ends with one line "N passed, N failed, N skipped"; the exit code is 1 where something failed or
nothing ran.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

COUNT_LINE = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


def known_tests(build, labels, pattern):
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                             capture_output=True, text=True, check=True)
    found = []
    for test in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        if not set(properties.get("LABELS", [])) & set(labels):
            continue
        if re.search(pattern, test["name"]):
            found.append((test["name"], test.get("command"), properties))
    return found


def gtest_counts(path):
    """Passed, failed, skipped of a GoogleTest report, and the names of what failed."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    passed, failed, skipped, names = 0, 0, 0, []
    for suite in report.get("testsuites", []):
        for case in suite.get("testsuite", []):
            if case.get("result") == "SKIPPED":
                skipped += 1
            elif case.get("status") == "NOTRUN":
                continue
            elif case.get("failures"):
                failed += 1
                names.append(f"{suite['name']}.{case['name']}")
            else:
                passed += 1
    return passed, failed, skipped, names


def counts_of(done, report, properties):
    """Counts of one finished test; a crash after some cases is a failure more."""
    names = []
    if os.path.exists(report):
        passed, failed, skipped, names = gtest_counts(report)
        if done.returncode != 0 and failed == 0:
            failed += 1
        return passed, failed, skipped, names
    lines = done.stdout.strip().splitlines()
    match = COUNT_LINE.match(lines[-1]) if lines else None
    if match:
        passed, failed, skipped = map(int, match.groups())
        return passed, failed + (done.returncode != 0 and failed == 0), skipped, names
    if done.returncode == properties.get("SKIP_RETURN_CODE", 77):
        return 0, 0, 1, names
    return int(done.returncode == 0), int(done.returncode != 0), 0, names


def run_one(command, properties):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        environment = dict(os.environ, GTEST_OUTPUT=f"json:{report}")
        for pair in properties.get("ENVIRONMENT", []):
            name, _, value = pair.partition("=")
            environment[name] = value
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", env=environment,
                                   cwd=properties.get("WORKING_DIRECTORY"),
                                   start_new_session=True)
        limit = properties.get("TIMEOUT", 600)
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            output += f"\nran longer than {limit} s and was ended\n"
        done = subprocess.CompletedProcess(command, process.returncode, output)
        return done, counts_of(done, report, properties)


def run_suite(build, labels, pattern):
    total = [0, 0, 0]
    for name, command, properties in known_tests(build, labels, pattern):
        if not command:
            print(f"  FAILED {name}: it is not built", flush=True)
            total[1] += 1
            continue
        begin = time.monotonic()
        done, (passed, failed, skipped, names) = run_one(command, properties)
        seconds = time.monotonic() - begin
        mark = "FAILED" if failed else "ok" if passed else "skipped"
        more = f", {failed} failed" if failed else ""
        more += f", {skipped} skipped" if skipped else ""
        print(f"  {mark:7} {name}: {passed} passed{more} ({seconds:.1f} s)", flush=True)
        if failed:
            print(f"--- output of {name}, exit code {done.returncode}\n{done.stdout}")
            print(f"--- end of {name}: {' '.join(names)}", flush=True)
        elif skipped and not passed and done.stdout.strip():
            print(f"          {done.stdout.strip().splitlines()[-1]}", flush=True)
        total = [a + b for a, b in zip(total, (passed, failed, skipped))]
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", nargs=3, action="append", required=True,
                        metavar=("BUILD", "LABELS", "PATTERN"))
    total = [0, 0, 0]
    for build, labels, pattern in parser.parse_args().suite:
        print(f"{os.path.basename(build)}: {labels}", flush=True)
        counts = run_suite(build, labels.split(","), pattern)
        total = [a + b for a, b in zip(total, counts)]
    print("{} passed, {} failed, {} skipped".format(*total), flush=True)
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
