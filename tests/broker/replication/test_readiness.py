"""When clients are sent to a member of a shard: once its copy was whole since its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.app.member.hindrances import problems
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def reasons(shard: ShardBrokers, number: int) -> list[str]:
    """Why clients are not sent to a member."""
    broker = shard.brokers[number]
    return problems(broker, broker.member)


LATE = "this broker's copy of the log is not in sync yet"


async def test_a_started_member_is_ready_once_it_is_in_sync_and_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = ShardBrokers(
        tmp_path, "replication.min_in_sync=1", "acknowledgement.level=leader", replicas=2
    )
    await two.start(0, 1)
    await two.all_in_sync(0, 1)
    await until(lambda: reasons(two, 0) == reasons(two, 1) == [])  # each has its own view
    await two.kill(1)
    await two.all_in_sync(0)
    leading = two.shell(0).executor.leading
    assert leading is not None
    await two.put(0, b"one")
    with monkeypatch.context() as silent:
        silent.setattr(leading, "_push_one", lambda *_, **__: False)  # it sends nobody anything
        await two.start(1)
        await until(lambda: any(LATE in reason for reason in reasons(two, 1)))
    await two.all_in_sync(0, 1)
    await until(lambda: reasons(two, 1) == [])
    await two.kill(0)
    assert reasons(two, 1) == [], "without a master it is reached all the same"
    await two.close()
