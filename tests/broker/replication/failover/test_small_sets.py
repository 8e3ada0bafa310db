"""Puts of a shard that has too few members in sync for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, take_nothing, until

if TYPE_CHECKING:
    from pathlib import Path

OK = PutStatus.OK


async def test_put_that_outlived_a_small_set_is_answered_when_another_member_joins(
    tmp_path: Path,
) -> None:
    three = ShardBrokers(tmp_path, session_ms=120_000)  # no renewal of the lease helps out
    await three.start(0, 1, 2)
    await three.all_in_sync(0, 1, 2)
    await three.put(0, b"one")
    await three.kill(2)
    await three.all_in_sync(0, 1)
    three.brokers[0].messages.acknowledgements.timeout_ms = 10_000
    following = three.shell(1).executor.following
    assert following is not None
    assert following.session is not None
    following.session.received = take_nothing  # type: ignore[method-assign]  # it falls behind
    following.session.heard_ms += 60_000
    waiting = asyncio.create_task(three.put(0, b"two"))
    await until(lambda: three.gate(0).short)
    assert not waiting.done(), "only one copy was made"
    three.store(0).request_sync()
    await until(lambda: three.gate(0).durable_end == three.store(0).log_end)
    await three.start(2)
    assert await waiting == [OK], "nothing else happens that would have it looked at"
    assert three.in_sync(0) == {0, 2}
    await three.close()
