"""The long version: `python -m imago_testing.chaos --minutes 10 [--seed 7] [--keep]`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from imago_testing.chaos.run import Plan, play

_PAUSE_SECONDS = 0.02
_SHOWN_MAX = 20


def main() -> int:
    """Run for some minutes, print the report, return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="keep the data folder")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="imago-chaos-"))
    print(f"killing a broker for {chosen.minutes:g} minutes, seed {chosen.seed}, data in {folder}")
    plan = Plan(
        seed=chosen.seed,
        kills_max=sys.maxsize,
        seconds_max=chosen.minutes * 60,
        load_seconds=(0.1, 3.0),
        pause=_PAUSE_SECONDS,
    )
    report = asyncio.run(play(plan, folder))
    print(report.text())
    for violation in report.violations[:_SHOWN_MAX]:
        print(violation)
    broken = bool(report.violations or report.damaged_files)
    if chosen.keep or broken:
        print(f"the data is in {folder}")
    else:
        shutil.rmtree(folder)
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
