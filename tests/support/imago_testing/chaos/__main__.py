"""The long version: `python -m imago_testing.chaos --minutes 10 [--seed 7] [--keep]`.

Rounds of many kills, each on a new data folder with a seed of its own, until the time is over.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from imago_testing.chaos.report import Report
from imago_testing.chaos.run import Plan, play
from imago_testing.chaos.stopping import end_when_told

_KILLS_OF_A_ROUND = 40
_PAUSE_SECONDS = 0.02
_SHOWN_MAX = 20


def main() -> int:
    """Run for some minutes, print the report, return 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="keep the data folders")
    chosen = parser.parse_args()
    end_when_told()
    end = time.monotonic() + chosen.minutes * 60
    print(f"killing a broker for {chosen.minutes:g} minutes, first seed {chosen.seed}", flush=True)
    total, seed = Report(), chosen.seed
    while total.sound and time.monotonic() < end:
        total.add(_round(seed, end - time.monotonic(), keep=chosen.keep))
        seed += 1
    print(total.text())
    for violation in total.violations[:_SHOWN_MAX]:
        print(violation)
    return int(not total.sound)


def _round(seed: int, seconds_max: float, *, keep: bool) -> Report:
    folder = Path(tempfile.mkdtemp(prefix="imago-chaos-"))
    plan = Plan(
        seed=seed,
        kills_max=_KILLS_OF_A_ROUND,
        seconds_max=seconds_max,
        load_seconds=(0.1, 3.0),
        pause=_PAUSE_SECONDS,
    )
    sound = False
    try:
        report, _ = asyncio.run(play(plan, folder))
        sound = report.sound
    finally:
        if sound and not keep:
            shutil.rmtree(folder)
        else:
            print(f"seed {seed}: the data is in {folder}")
    counts = f"{report.kills} kills, {report.acknowledged} acknowledged"
    print(f"seed {seed}: {counts}, {len(report.violations)} promises broken", flush=True)
    return report


if __name__ == "__main__":
    sys.exit(main())
