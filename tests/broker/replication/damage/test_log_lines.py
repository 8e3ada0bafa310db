"""Lines of a shard's log as JSON, in a short life of it: each is an event that the page names."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from imago_broker.app import ticking
from imago_broker.app.log_lines import UNNAMED, JsonLines
from imago_broker.replication import failover_policy
from imago_broker.service.puts.put_status import PutStatus
from imago_log.disk.vfs import DiskUsage, OsVfs
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_tools.log_events import events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEGMENT_BYTES = 64 << 10
ASKED_FOR = {
    "broker_started": "start",
    "mastership_begins": "election",
    "append_failed": "put error",
    "log.deleted_for_room": "forced deletion",
    "broker_stopped": "stop",
}


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the whole process logs from here on, as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def broken(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("planted\nin two lines")


async def live(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start three members, lose messages and a leader, stop."""
    used = 50
    monkeypatch.setattr(failover_policy, "CROWDED_LEADS_MS", 200)
    monkeypatch.setattr(ticking, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(OsVfs, "disk_usage", lambda *_: DiskUsage(total=100, used=used))
    shard = ShardBrokers(
        folder,
        "store.disk_clean_ratio=0.75",
        "store.disk_force_ratio=0.85",
        "store.disk_full_ratio=0.9",
        "store.disk_force_deletes=oldest",
        "store.retention_ms=0",
        f"store.segment_bytes_max={SEGMENT_BYTES}",
        "rocketmq.message_bytes_max=16384",
        "metaq.message_bytes_max=16384",
    )
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    bodies = [b"%06d" % at + bytes(4000) for at in range(4 * SEGMENT_BYTES // 4096)]
    assert set(await shard.put(0, *bodies)) == {PutStatus.OK}
    used = 87
    await until(lambda: shard.store(0).log_start > 0)
    used = 50
    with monkeypatch.context() as planted:
        planted.setattr(shard.store(0), "append", broken)
        assert await shard.put(0, b"x") != [PutStatus.OK]
    await shard.kill(0)
    assert await shard.led(but=0) in {1, 2}
    await shard.close()


async def test_every_line_of_a_short_life_is_an_event_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: io.StringIO
) -> None:
    await live(tmp_path, monkeypatch)
    lines: list[dict[str, Any]] = [json.loads(line) for line in written.getvalue().splitlines()]
    known = {event.name: event for event in events()}
    seen = {line["event"] for line in lines}
    ours = [line for line in lines if line["logger"].startswith("imago_")]
    assert [line for line in ours if line["event"] not in known] == []
    assert {line["event"] for line in lines if line not in ours} <= {UNNAMED}
    assert {what for event, what in ASKED_FOR.items() if event not in seen} == set()
    [gone, *_] = [line for line in lines if line["event"] == "log.deleted_for_room"]
    assert gone["fields"]["files"] > 0
    assert gone["level"] == "warning"
    [failed] = [line for line in lines if line["event"] == "append_failed"]
    assert failed["fields"] == {"entries": 1}
    assert "in two lines" in failed["exception"]
