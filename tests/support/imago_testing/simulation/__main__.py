"""`make simulate`: many seeds with progress, and a summary; or the exhaustive small model."""

from __future__ import annotations

import argparse
import sys
import time

from imago_log.errors import StoreError
from imago_testing.simulation import exhaustive
from imago_testing.simulation.run import simulate
from imago_testing.simulation.world import Setup

PROGRESS_SEEDS = 500
FAILURES_MAX = 5


def seeds(first: int, count: int, *, stores: bool) -> int:
    """Run seeds; print the story of what fails; return the exit code."""
    began = time.monotonic()
    totals = {"events": 0, "faults": 0, "elections": 0, "acks": 0, "excused": 0}
    failed: list[int] = []
    for done, seed in enumerate(range(first, first + count), 1):
        try:
            result = simulate(Setup(seed=seed, stores=stores))
        except (AssertionError, ValueError, KeyError, StoreError) as error:
            failed.append(seed)
            print(f"seed {seed}: {error}", *getattr(error, "__notes__", ()), sep="\n")
            if len(failed) >= FAILURES_MAX:
                print("too many failures, the rest is not run")
                break
            continue
        for name in totals:
            totals[name] += getattr(result, name)
        if done % PROGRESS_SEEDS == 0:
            took = time.monotonic() - began
            print(f"{done} of {count} seeds, {totals['events']} events, {took:.0f} s", flush=True)
    print(", ".join(f"{value} {name}" for name, value in totals.items()))
    print(f"failed: {failed}" if failed else "no invariant was broken")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--stores", action="store_true", help="members with real stores: slower")
    parser.add_argument("--model", choices=["no", *exhaustive.BOUNDS], default="no")
    options = parser.parse_args()
    if options.model != "no":
        return exhaustive.main(options.model)
    return seeds(options.first, options.seeds, stores=options.stores)


if __name__ == "__main__":
    sys.exit(main())
