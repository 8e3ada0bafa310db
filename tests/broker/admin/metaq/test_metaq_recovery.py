"""Offsets of MetaQ's groups in a log whose positions are not those of the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.app import Broker
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.edits import edits
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.service.groups import metaq_offset_recovery
from imago_testing.clusters.brokers import loopback_config
from imago_testing.peers.metaq import metaq_peer, put_place

if TYPE_CHECKING:
    from pathlib import Path

OFFSETS = "/meta/consumers/{}/offsets/test/0-0"
IDS = [-900, -100, -500, 70, 90]
"""Of five messages of 25 bytes: those of the clock since boot, and wall clock ones."""
RECORDS = {
    "last": (-500, 1000, 75),
    "first": (-900, 0, 25),
    "stays": (90, 125, 125),
    "between": (80, 7, 100),
    "unknown": (-77, 50, None),
}
"""Group to the id and position of its record, and the position that is right here."""


@pytest.mark.parametrize("looked_at_once", [1, 2, 1000])
async def test_groups_go_on_behind_the_message_that_they_have_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looked_at_once: int
) -> None:
    monkeypatch.setattr(metaq_offset_recovery, "LOOKED_AT_ONCE", looked_at_once)
    config = loopback_config(tmp_path, "topics.test.queues=1", "metaq.gregor=true")
    tree = MemoryTree(MemoryEnsemble())
    broker = Broker(config, coordinator=TreeCoordinator(CoordinatorConfig(), tree))
    await broker.start()
    try:
        async with metaq_peer(broker.metaq_port) as master:
            for message_id in IDS:
                put_place(await master.ask(b"sync test 0 5 0 %d 7\r\nhello" % message_id))
        for group, (message_id, position, _) in RECORDS.items():
            await write(tree, group, f"{message_id}-{position}")
        await write(tree, "old", "50")
        await write(tree, "new", "-1-0")
        await write(tree, "set", "0-7")
        await recover(broker, tree, dry_run=True)
        await recover(broker, tree, dry_run=False)
        for group, (message_id, position, right) in RECORDS.items():
            assert await told(tree, group) == f"{message_id}-{right or position}"
        assert [await told(tree, group) for group in ("old", "new", "set")] == ["50", "-1-0", "0-7"]
    finally:
        await broker.stop()


async def recover(broker: Broker, tree: MemoryTree, *, dry_run: bool) -> None:
    """Ask for it; check the answer, and that a look changes nothing."""
    url = f"http://127.0.0.1:{broker.ports.admin_port}/admin/v1/metaq/recover-offsets"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json={"dryRun": dry_run}) as response,
    ):
        assert response.status == 200
        rows = {row["group"]: row for row in (await response.json())["records"]}
    assert {group: row["here"] for group, row in rows.items()} == {
        group: right for group, (_, _, right) in RECORDS.items()
    }
    moved = {group for group, row in rows.items() if row["moved"]}
    assert moved == (set() if dry_run else {"last", "first", "between"})
    if dry_run:
        assert await told(tree, "last") == "-500-1000"


async def write(tree: MemoryTree, group: str, text: str) -> None:
    path = OFFSETS.format(group)
    parts = path.split("/")[1:]
    parents = ["/" + "/".join(parts[: end + 1]) for end in range(len(parts) - 1)]
    await edits.ensure(tree, [*((parent, b"") for parent in parents)])
    await edits.ensure(tree, [(path, text.encode())])


async def told(tree: MemoryTree, group: str) -> str:
    node = await tree.get(OFFSETS.format(group))
    assert node is not None
    return node.data.decode()
