"""Run what failed once more, alone, and say so.

Six workers on two cores are late now and then, and 13,000 tests meet that. What fails again alone
is a fault. What looks for lost, doubled or disordered messages never gets a second chance.
"""

import json
import re
import sys
from pathlib import Path

import pytest

FAILED_MAX = 8  # more than a busy machine ever explained
NEVER_AGAIN = re.compile(
    r"^tests/(chaos|simulation|fuzz|log/crashes|log/damage)/"
    r"|lost|lose|missed|twice|(row|message)_once|order|kill|crash|acknowledged|promise|invariant"
)


def refusal(failed: list[str]) -> str | None:
    """Say why these tests are not tried again; None: they may be."""
    if not 1 <= len(failed) <= FAILED_MAX:
        return f"not tried again: {len(failed)} failed (1 to {FAILED_MAX} are)"
    if final := [test for test in failed if NEVER_AGAIN.search(test)]:
        never = "not tried again, for what they look for must never happen:"
        return "\n  ".join([never, *final])
    return None


def main() -> int:
    record = Path(".pytest_cache/v/cache/lastfailed")
    failed = sorted(json.loads(record.read_text())) if record.exists() else []
    if (why := refusal(failed)) is not None:
        print(why)
        return 1
    print("failed beside others, and tried once more alone:", *failed, sep="\n  ", flush=True)
    return pytest.main(["-n", "0", *failed])


if __name__ == "__main__":
    sys.exit(main())
