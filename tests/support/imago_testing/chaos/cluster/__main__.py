"""`python -m imago_testing.chaos.cluster [--minutes 10 | --faults a,b,c] [--seed 7] [--json FILE]`.

Three brokers and three ZooKeeper servers in network namespaces of their own (root is needed); one
fault after another, drawn by the seed, while clients of both protocols write and read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from imago_testing.chaos.cluster.faults import FAULTS
from imago_testing.chaos.cluster.report import ClusterReport
from imago_testing.chaos.cluster.run import Plan, Run
from imago_testing.chaos.cluster.shard import Shard

_FAULTS_PER_ROUND = 12
_SESSION_MS = 2000
_SHOWN_MAX = 20


def main() -> int:
    """Return 1 when a promise was broken."""
    chosen = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="imago-chaos-"))
    total = ClusterReport(seed=chosen.seed)
    sound = False
    try:
        with Shard(folder, session_ms=chosen.session_ms) as shard:
            _rounds(shard, chosen, total)
        sound = not total.violations
    finally:
        if sound and not chosen.keep:
            shutil.rmtree(folder)
        else:
            print(f"logs and configurations are in {folder}")
    print(total.text())
    for violation in total.violations[:_SHOWN_MAX]:
        print(violation)
    if chosen.json:
        chosen.json.write_text(json.dumps(total.json(), indent=1))
    return int(not sound)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", help=f"in this order, once: {', '.join(FAULTS)}")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--session-ms", type=int, default=_SESSION_MS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep logs and configurations")
    chosen = parser.parse_args()
    if unknown := set(filter(None, (chosen.faults or "").split(","))) - set(FAULTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(FAULTS)}")
    return chosen


def _rounds(shard: Shard, chosen: argparse.Namespace, total: ClusterReport) -> None:
    if chosen.faults:
        plan = Plan(seed=chosen.seed, faults=chosen.faults.split(","))
        total.add(asyncio.run(Run(plan, shard).play()))
        return
    end, seed = time.monotonic() + chosen.minutes * 60, chosen.seed
    while time.monotonic() < end and not total.violations:
        rng = random.Random(seed)
        plan = Plan(seed=seed, faults=rng.sample(list(FAULTS), _FAULTS_PER_ROUND))
        total.add(asyncio.run(Run(plan, shard).play()))
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
