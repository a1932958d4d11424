"""Runs a module's unittest cases and ends with the line that tools/run_tests.py reads."""

import sys
import unittest


def main(module="__main__", argv=None):
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[module])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    for case, reason in result.skipped:
        print(f"skipped {case}: {reason}")
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed else 0)
