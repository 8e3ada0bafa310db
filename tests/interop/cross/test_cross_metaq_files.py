"""MetaQ's own files, as this store writes them, in a folder of the original MetaQ broker."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from imago_log import MessageStore, StoreConfig
from imago_testing.interop.drivers import METAQ
from imago_testing.interop.metaq import MetaqClient
from imago_testing.java.originals import SMALL, Scale, metaq_original, wait_for_topic
from imago_testing.peers.metaq import metaq_peer, put_place, value_body
from imago_wire.compression import compress
from imago_wire.record_format.layout import SYS_COMPRESSED
from imago_wire.records.record import host_bytes, make_entry, metaq_entry, metaq_shape
from imago_wire.text.message import encode_body

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.java.driver import JavaDriver
    from imago_wire.record_format.entries import Entry

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("across", clients=("metaq",)),
]
HOST = host_bytes("127.0.0.1", 8123)
NOW_MS = 1_800_000_000_000
PARTITIONS = 4
FILE_BYTES = 400
TOPIC = "files"
LONG = b"to be compressed " * 200
SENT = [
    *[(b"%d" % number, "tag" if number % 3 else None) for number in range(100)],
    (b"", None),
    (b"", "only an attribute"),
    (LONG, "long"),
    (bytes(range(256)) * 8, "grün"),
]


def entry(store: MessageStore, number: int) -> Entry:
    """Return a message as MetaQ or RocketMQ puts it, its body compressed where that is long."""
    body, attribute = SENT[number]
    tail = store.tail(TOPIC, number % PARTITIONS)
    if number % 2:
        flag, content = encode_body(body, attribute)
        return metaq_entry(tail, content, flag, -1, NOW_MS, HOST)
    properties = b"" if attribute is None else b"TAGS\x01" + attribute.encode() + b"\x02"
    if body is not LONG:
        return make_entry(tail, body, properties, born_ms=NOW_MS, born_host=HOST)
    shape = metaq_shape(body, properties)
    return make_entry(
        tail, compress(body), properties, sys_flag=SYS_COMPRESSED, born_ms=NOW_MS, born_host=HOST,
        metaq_shape=shape,
    )  # fmt: skip


def written(folder: Path) -> dict[str, bytes]:
    """Write messages and their files; return the names and contents of these."""
    config = StoreConfig(
        data_dir=folder,
        metaq_broker_id=0,
        store_host=HOST,
        segment_bytes_max=1 << 20,
        metaq_segment_bytes_max=FILE_BYTES,
        message_bytes_max=1 << 16,
    )
    store = MessageStore.open(config, clock=lambda: NOW_MS)
    store.create_topic(TOPIC, {})
    store.set_materialised(TOPIC)
    for number in range(len(SENT)):
        store.append([entry(store, number)])
    store.close()
    return contents(folder / "metaq")


def contents(folder: Path) -> dict[str, bytes]:
    """Return all of MetaQ's files, by partition and name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.meta")}


async def test_the_original_broker_serves_and_continues_files_of_this_store(
    tmp_path: Path, drivers: dict[str, JavaDriver]
) -> None:
    files = written(tmp_path / "ours")
    assert len(files) > 2 * PARTITIONS, "there are files that are closed"
    shutil.copytree(tmp_path / "ours" / "metaq", tmp_path / "meta")
    # Beside any other folder in its data path 1.4.6.2 leaves out the last partitions that it finds,
    # until something is put to them.
    journal = {"dataLogPath": str(tmp_path / "journal")}
    scale = Scale(metaq={**SMALL.metaq, **journal})
    with metaq_original(tmp_path, [TOPIC], scale) as original:
        wait_for_topic(original.registry, TOPIC)
        assert contents(tmp_path / "meta") == files, "it takes them as they are"
        async with metaq_peer(original.port) as peer:
            for number in range(PARTITIONS):
                own = sorted(name for name in files if name.startswith(f"{TOPIC}-{number}/"))
                expected, found = b"".join(files[name] for name in own), b""
                while len(found) < len(expected):
                    found += value_body(await peer.get(TOPIC, number, len(found)))
                assert found == expected
                _, partition, position = put_place(await peer.put(TOPIC, number, b"next"))
                assert (partition, position) == (number, len(expected))
        drivers[METAQ].wait_ready()
        client = MetaqClient(drivers[METAQ], original.registry, [original.url])
        with client.factory() as factory:
            browsed = [(each.body, each.attribute) for each in factory.browse(TOPIC)]
    assert sorted(browsed, key=str) == sorted([*SENT, *[(b"next", None)] * PARTITIONS], key=str)
