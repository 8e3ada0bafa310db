"""Runs seeds: `python -m imago_testing.kills FIRST LAST`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from imago_testing.clusters.shard_processes import Members
from imago_testing.kills.run import copy_under_kills
from imago_testing.processes.zookeeper import running_zookeeper


async def run(seed: int) -> bool:
    """Run one seed; return whether each row is there once."""
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        with running_zookeeper(folder) as zookeeper:
            members = Members(folder, zookeeper.address)
            try:
                for number in range(3):
                    members.start(number)
                for number in range(3):
                    await members.serve(number)
                (folder / "query").mkdir()
                outcome = await copy_under_kills(members, folder / "query", seed)
            finally:
                members.end()
    print(f"seed {seed}: {outcome}", flush=True)
    return not (outcome.lost or outcome.twice)


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:])
    found = [asyncio.run(run(seed)) for seed in range(first, last + 1)]
    sys.exit(not all(found))
