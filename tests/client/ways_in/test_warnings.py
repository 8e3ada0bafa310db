"""What fails again and again is said once, then once a minute with a count."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from imago_client import Client, ConsumerConfig
from imago_client.blocking import Client as BlockingClient
from imago_client.core import warning_pace
from imago_client.core.warning_pace import AGAIN_S, WarningPace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from imago_broker.app import Broker
    from imago_client import ReceivedMessage


def test_a_warning_comes_back_after_a_minute_with_its_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warning_pace, "SUBJECTS_MAX", 2)
    now_s = 0.0
    pace = WarningPace(lambda: now_s)
    assert [pace.due("pull", 1), pace.due("pull", 1), pace.due("pull", 2)] == [1, 0, 1]
    now_s = AGAIN_S
    assert pace.due("pull", 1) == 2
    assert pace.due("pull", 3) == 1, "the oldest, 2, is forgotten"
    assert [pace.due("pull", 1), pace.due("pull", 2)] == [0, 1]


def test_what_was_said_longest_ago_is_forgotten_though_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warning_pace, "SUBJECTS_MAX", 2)
    now_s = 0.0
    pace = WarningPace(lambda: now_s)
    assert [pace.due("pull", 1), pace.due("pull", 2), pace.due("pull", 1)] == [1, 1, 0]
    assert pace.due("pull", 3) == 1, "1 is forgotten"
    assert [pace.due("pull", 2), pace.due("pull", 1)] == [0, 1]


async def test_consumers_of_a_topic_that_is_gone_fill_no_log(
    client: Client, broker: Broker, bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    await client.admin.create_topic("orders", queues=1)
    config = ConsumerConfig(group="g", error_pause_s=0.01)

    async def handle(_: Sequence[ReceivedMessage]) -> None:
        """Nothing comes."""

    def poll() -> None:
        with (
            BlockingClient(bootstrap) as blocking,
            blocking.group_consumer(ConsumerConfig(group="h", error_pause_s=0.01), ["orders"]) as c,
        ):
            while not over:
                c.poll(0.01)

    over: list[bool] = []
    polling = asyncio.create_task(asyncio.to_thread(poll))
    async with client.push_consumer(config, ["orders"], handle):
        broker.topics.delete("orders")
        while "pull_failed" not in caplog.text:  # noqa: ASYNC110  the consumers' own pauses
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        over.append(True)
        await polling
    pulls = [each.getMessage() for each in caplog.records if "pull_failed" in each.getMessage()]
    assert max(Counter(pulls).values()) <= 2, "once of each client"
