"""Run what failed once more, alone, and say so.

Six workers on two cores are late now and then, and 13,000 tests meet that. What fails again alone
is a fault. What looks for lost, doubled or disordered messages never gets a second chance.
"""

import json
import sys
from pathlib import Path

import pytest

FAILED_MAX = 8  # more than a busy machine ever explained
NEVER_AGAIN = ("tests/chaos/", "tests/simulation/", "tests/log/crashes/", "tests/fuzz/")


def main() -> int:
    record = Path(".pytest_cache/v/cache/lastfailed")
    failed = sorted(json.loads(record.read_text())) if record.exists() else []
    if not failed or len(failed) > FAILED_MAX:
        print(f"not tried again: {len(failed)} failed (1 to {FAILED_MAX} are)")
        return 1
    final = [test for test in failed if test.startswith(NEVER_AGAIN)]
    if final:
        print("not tried again, for what they look for must never happen:", *final, sep="\n  ")
        return 1
    print("failed beside others, and tried once more alone:", *failed, sep="\n  ", flush=True)
    return pytest.main(["-n", "0", *failed])


if __name__ == "__main__":
    sys.exit(main())
