"""`python -m imago_testing.chaos.cluster [--minutes 10 | --faults a,b,c] [--seed 7] [--json FILE]`.

Three brokers and three ZooKeeper servers in network namespaces of their own (root is needed); one
fault after another, drawn by the seed, while clients of both protocols write and read.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imago_testing.chaos.cluster.drains import DRAINS
from imago_testing.chaos.cluster.faults import FAULTS
from imago_testing.chaos.cluster.members import Sizes
from imago_testing.chaos.cluster.report import ClusterReport
from imago_testing.chaos.cluster.rotations import ROTATIONS
from imago_testing.chaos.cluster.run import Plan, Run
from imago_testing.chaos.cluster.shard import Shard
from imago_testing.chaos.stopping import end_when_told

if TYPE_CHECKING:
    from collections.abc import Sequence

_FAULTS_PER_ROUND = 12
_SESSION_MS = 2000
_SHOWN_MAX = 20


def main() -> int:
    """Return 1 when a promise was broken."""
    chosen = _arguments()
    end_when_told()
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # servers die here all the time
    folder = Path(tempfile.mkdtemp(prefix="imago-chaos-"))
    sizes = Sizes(segment=chosen.segment_bytes, retention=chosen.retention_bytes)
    total = ClusterReport(seed=chosen.seed)
    sound = False
    try:
        with Shard(
            folder, session_ms=chosen.session_ms, sizes=sizes, closes=chosen.closed
        ) as shard:
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
    add = parser.add_argument
    add("--minutes", type=float, default=5.0)
    add("--faults", help=f"in this order, once: {', '.join([*FAULTS, *DRAINS])}")
    add(
        "--closed",
        action="store_true",
        help="TLS on all ports, mutual between members; clients sign, or show certificates, and"
        f" somebody without rights tries to write; more faults: {', '.join(ROTATIONS)}",
    )
    add("--without", default="", help="faults that are left out")
    add("--seed", type=int, default=int(time.time()))
    add("--session-ms", type=int, default=_SESSION_MS)
    add("--json", type=Path)
    add("--keep", action="store_true", help="keep logs and configurations")
    add("--every", type=_seconds, default=(12.0, 15.0), help="from fault to fault: LEAST,MOST")
    add("--calm", type=_seconds, default=(3.0, 5.0), help="undisturbed at least: LEAST,MOST")
    add("--body-bytes", type=int, default=8192, help="mean of the bodies")
    add("--burst-bytes", type=int, default=0, help="written before each fault at least")
    add(
        "--rate-min",
        type=float,
        default=5.0,
        help="MB/s between faults below which the run fails; a shared machine may not reach it",
    )
    add("--rate-max", type=float, default=8.0, help="MB/s that producers hold to")
    add("--segment-bytes", type=int, default=Sizes().segment)
    add("--retention-bytes", type=int, default=Sizes().retention, help="0: everything is kept")
    chosen = parser.parse_args()
    named = f"{chosen.faults or ''},{chosen.without}".split(",")
    known = _known(chosen)
    if unknown := set(filter(None, named)) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return chosen


def _known(chosen: argparse.Namespace) -> list[str]:
    return [*FAULTS, *DRAINS, *(ROTATIONS if chosen.closed else ())]


def _rounds(shard: Shard, chosen: argparse.Namespace, total: ClusterReport) -> None:
    if chosen.faults:
        total.add(_play(shard, chosen, chosen.seed, chosen.faults.split(",")))
        return
    end, seed = time.monotonic() + chosen.minutes * 60, chosen.seed
    known = _known(chosen)
    names = [name for name in known if name not in chosen.without.split(",")]
    random.Random(seed).shuffle(names)
    rounds = itertools.cycle(range(0, len(names), _FAULTS_PER_ROUND))
    while time.monotonic() < end and not total.violations:
        first = next(rounds)
        total.add(_play(shard, chosen, seed, names[first : first + _FAULTS_PER_ROUND]))
        seed += 1


def _play(
    shard: Shard, chosen: argparse.Namespace, seed: int, faults: Sequence[str]
) -> ClusterReport:
    print(f"seed {seed}: {', '.join(faults)}", flush=True)
    plan = Plan(
        seed=seed,
        faults=faults,
        calm_seconds=chosen.calm,
        every_seconds=chosen.every,
        burst_bytes=chosen.burst_bytes,
        body_bytes=chosen.body_bytes,
        rate_min=chosen.rate_min * 1e6,
        rate_max=chosen.rate_max * 1e6,
    )
    return asyncio.run(Run(plan, shard).play())


def _seconds(text: str) -> tuple[float, float]:
    least, _, most = text.partition(",")
    return float(least), float(most or least)


if __name__ == "__main__":
    sys.exit(main())
