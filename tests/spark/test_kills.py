"""A topic is copied once to a topic and to Parquet, while driver, workers and master are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.shard_processes import Members
from imago_testing.kills.run import copy_under_kills
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.full]


@pytest.mark.traces_wanted  # of the kills: Spark prints where it was
async def test_each_row_is_copied_once(tmp_path: Path) -> None:
    """More seeds: `PYTHONPATH=tests/support python -m imago_testing.kills 2 50`."""
    (tmp_path / "query").mkdir()
    with running_zookeeper(tmp_path) as zookeeper:
        members = Members(tmp_path, zookeeper.address)
        try:
            for number in range(3):
                members.start(number)
            for number in range(3):
                await members.serve(number)
            outcome = await copy_under_kills(members, tmp_path / "query", seed=1)
        finally:
            members.end()
    assert (outcome.lost, outcome.twice) == (0, 0), outcome
    assert outcome.kills
