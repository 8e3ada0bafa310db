"""How far MetaQ's consumers are: they write it into the public tree, and no broker hears of it.

`<root>/consumers/<group>/offsets/<topic>/<broker id>-<partition>` holds `<message id>-<position>`,
or a plain position from clients before 1.4.0; the position is split off at the last `-`.
`<root>/consumers/<group>/ids/<consumer id>` is ephemeral: who consumes now, and which topics.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from imago_broker.cluster.edits import edits
from imago_broker.cluster.tree import Delete, NoNodeError
from imago_broker.model.metaq_tree import OffsetRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from imago_broker.cluster.tree import Node, NodeTree
    from imago_broker.model.metaq_tree import OffsetCopy
    from imago_broker.ports import MetaqProgress

READS_AT_ONCE = 16
_RECORD = re.compile(rb"(-?\d{1,19})-(\d{1,19})")


async def read(
    tree: NodeTree,
    root: str,
    broker_id: int,
    topics: frozenset[str],
    of: Sequence[str] | None = None,
) -> MetaqProgress:
    """Return topic to group to partition to position, of one broker id; `of`: None means all.

    A group reads a topic in which it has told progress on any broker, or of which it has a
    consumer now: without a position of this broker id it has read nothing here. What cannot be
    read as a position counts as the start.
    """
    found: dict[str, dict[str, dict[int, int]]] = {}
    listed = await groups(tree, root) if of is None else of
    for start in range(0, len(listed), READS_AT_ONCE):
        part = listed[start : start + READS_AT_ONCE]
        folders = [f"{root}/consumers/{group}" for group in part]
        told = await asyncio.gather(*(_of_group(tree, f, broker_id, topics) for f in folders))
        for group, positions in zip(part, told, strict=True):
            for topic, by_partition in positions.items():
                found.setdefault(topic, {})[group] = by_partition
    return found


async def groups(tree: NodeTree, root: str) -> tuple[str, ...]:
    """Return the names of all groups that have a folder, however old it is."""
    return await _names(tree, f"{root}/consumers")


async def members(
    tree: NodeTree, root: str, groups: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the consumers of each group that have a session: children of its `ids`."""
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(groups), READS_AT_ONCE):
        part = groups[start : start + READS_AT_ONCE]
        told = await asyncio.gather(*(_names(tree, f"{root}/consumers/{g}/ids") for g in part))
        found |= dict(zip(part, told, strict=True))
    return found


async def copy_offsets(tree: NodeTree, root: str, topic: str, copy: OffsetCopy) -> list[str]:
    """Give partitions of one broker id the offsets of another's; return the nodes made.

    What stands there already stays.
    """
    made: list[str] = []
    for group in await groups(tree, root):
        folder = f"{root}/consumers/{group}/offsets/{topic}"
        for partition in range(copy.first, copy.last + 1):
            node = await tree.get(f"{folder}/{copy.source}-{partition}")
            path = f"{folder}/{copy.target}-{partition - copy.first + copy.target_first}"
            if node is not None and await tree.get(path) is None:
                await edits.ensure(tree, [(path, node.data)])
                made.append(path)
    return made


async def owners(
    tree: NodeTree, root: str, broker_id: int, topic: str, group: str
) -> dict[int, str]:
    """Return the consumers that own partitions of one broker id."""
    folder = f"{root}/consumers/{group}/owners/{topic}"
    mine = [name for name in await _names(tree, folder) if _is_of(name, broker_id)]
    nodes = await _each([tree.get(f"{folder}/{name}") for name in mine])
    return {
        int(name.rpartition("-")[2]): node.data.decode("utf-8", "replace")
        for name, node in zip(mine, nodes, strict=True)
        if node is not None
    }


async def set_offset(tree: NodeTree, path: str, at: int) -> None:
    """Write an offset record as the original's dashboard does: without a message's id."""
    parts = path.strip("/").split("/")
    parents = ["/" + "/".join(parts[: end + 1]) for end in range(len(parts) - 1)]
    await edits.ensure(tree, [(parent, b"") for parent in parents])
    await edits.change(tree, path, lambda _: f"0-{at}".encode())


async def records(
    tree: NodeTree, root: str, broker_id: int, topics: Iterable[str]
) -> list[OffsetRecord]:
    """Return the offset records of all groups in the partitions of a broker id.

    Left out are those without a message: of clients before 1.4.0, and of whoever has had none.
    """
    found: list[OffsetRecord] = []
    for group in await groups(tree, root):
        for topic in sorted(topics):
            folder = f"{root}/consumers/{group}/offsets/{topic}"
            mine = [name for name in await _names(tree, folder) if _is_of(name, broker_id)]
            nodes = await _each([tree.get(f"{folder}/{name}") for name in mine])
            for name, node in zip(mine, nodes, strict=True):
                told = None if node is None else _RECORD.fullmatch(node.data)
                if told is not None and told[1] not in (b"-1", b"0"):
                    partition = int(name.rpartition("-")[2])
                    message_id, at = int(told[1]), int(told[2])
                    record = {"message_id": message_id, "position": at}
                    found.append(
                        OffsetRecord(group=group, topic=topic, partition=partition, **record)
                    )
    return found


async def forget(tree: NodeTree, root: str, broker_id: int) -> None:
    """Delete the offsets of all groups in the partitions of a broker id that is no more."""
    for group in await groups(tree, root):
        offsets = f"{root}/consumers/{group}/offsets"
        for topic in await _names(tree, offsets):
            folder = f"{offsets}/{topic}"
            for name in await _names(tree, folder):
                if _is_of(name, broker_id):
                    with suppress(NoNodeError):
                        await tree.commit([Delete(f"{folder}/{name}")])


async def move(
    tree: NodeTree, root: str, broker_id: int, record: OffsetRecord, position: int
) -> bool:
    """Give a record another position, unless somebody has changed it meanwhile."""
    before = b"%d-%d" % (record.message_id, record.position)
    after = b"%d-%d" % (record.message_id, position)
    folder = f"{root}/consumers/{record.group}/offsets/{record.topic}"
    path = f"{folder}/{broker_id}-{record.partition}"
    return await edits.change(tree, path, lambda data: after if data == before else None)


async def _of_group(
    tree: NodeTree, folder: str, broker_id: int, topics: frozenset[str]
) -> dict[str, dict[int, int]]:
    read = {*await _names(tree, f"{folder}/offsets"), *await _subscribed(tree, f"{folder}/ids")}
    names = sorted(topics & read)
    told = [await _positions(tree, f"{folder}/offsets/{name}", broker_id) for name in names]
    return dict(zip(names, told, strict=True))


async def _subscribed(tree: NodeTree, folder: str) -> set[str]:
    nodes = await _each([tree.get(f"{folder}/{name}") for name in await _names(tree, folder)])
    told = (node.data.decode("utf-8", "replace") for node in nodes if node is not None)
    return {topic.strip() for text in told for topic in text.split(",")}


async def _positions(tree: NodeTree, folder: str, broker_id: int) -> dict[int, int]:
    mine = [name for name in await _names(tree, folder) if _is_of(name, broker_id)]
    nodes = await _each([tree.get(f"{folder}/{name}") for name in mine])
    return {
        int(name.rpartition("-")[2]): position(node.data)
        for name, node in zip(mine, nodes, strict=True)
        if node is not None
    }


def position(data: bytes) -> int:
    """Return the position of an offset record; 0 for what is none."""
    text = data.decode("utf-8", "replace")
    at = text.rfind("-")
    number = text[at + 1 :] if at > 0 else text
    return int(number) if number.isascii() and number.isdecimal() else 0


def _is_of(name: str, broker_id: int) -> bool:
    broker, _, partition = name.partition("-")
    return broker == str(broker_id) and partition.isascii() and partition.isdecimal()


async def _names(tree: NodeTree, path: str) -> tuple[str, ...]:
    try:
        return await tree.children(path)
    except NoNodeError:
        return ()


async def _each(calls: Sequence[Awaitable[Node | None]]) -> list[Node | None]:
    done: list[Node | None] = []
    for start in range(0, len(calls), READS_AT_ONCE):
        done += await asyncio.gather(*calls[start : start + READS_AT_ONCE])
    return done
