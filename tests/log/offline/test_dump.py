"""The dump: every record as it was given, also around damage."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import orjson
import pytest

from imago_log import DataFolderLockedError
from imago_log.metadata.changes import META_TOPIC
from imago_log.offline.dump import NotADataFolderError, Unreadable, dump, readable_body, to_json
from imago_testing.stores.in_memory import HOST
from imago_testing.stores.on_disk import FILES, PLAIN, make_files, open_files
from imago_wire.records.record import StoredMessage, make_entry

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 4096


def messages(folder: Path, **choice: object) -> list[StoredMessage]:
    found = list(dump(folder, **choice))  # type: ignore[arg-type]  # as the tests give it
    return [record for record in found if isinstance(record, StoredMessage)]


def test_every_message_is_shown_in_the_order_of_the_log(tmp_path: Path) -> None:
    sent = make_files(tmp_path).sent
    found = [record for record in messages(tmp_path) if record.topic != META_TOPIC]
    assert [(one.topic, one.queue_id, one.queue_offset, one.body) for one in found] == [
        (one.topic, one.queue_id, one.offset, one.body) for one in sent
    ]
    assert META_TOPIC in {record.topic for record in messages(tmp_path)}


def test_a_queue_is_shown_from_its_offset(tmp_path: Path) -> None:
    make_files(tmp_path)
    found = messages(tmp_path, topic=FILES, queue_id=1, start=7, count=3)
    assert [record.queue_offset for record in found] == [7, 8, 9]
    assert {(record.topic, record.queue_id) for record in found} == {(FILES, 1)}


def test_a_topic_is_shown_from_a_log_offset(tmp_path: Path) -> None:
    sent = [one for one in make_files(tmp_path).sent if one.topic == PLAIN]
    found = messages(tmp_path, topic=PLAIN, start=sent[20].place)
    assert [record.physical_offset for record in found] == [one.place for one in sent[20:]]


def test_none_are_shown_of_an_unknown_topic_or_a_count_of_none(tmp_path: Path) -> None:
    make_files(tmp_path)
    assert messages(tmp_path, topic="nobody") == []
    assert messages(tmp_path, count=0) == []


def test_damage_is_named_and_passed_over(tmp_path: Path) -> None:
    sent = make_files(tmp_path).sent
    hit, behind = sent[30], sent[31]
    path = tmp_path / "commitlog" / f"{hit.place - hit.place % SEGMENT:020d}"
    content = bytearray(path.read_bytes())
    content[hit.place % SEGMENT + 100] ^= 1
    path.write_bytes(content)
    found = list(dump(tmp_path))
    gaps = [one for one in found if isinstance(one, Unreadable)]
    assert [(gap.start, gap.end, gap.file) for gap in gaps] == [(hit.place, behind.place, path)]
    assert "checksum" in gaps[0].reason
    bodies = [one.body for one in messages(tmp_path) if one.topic != META_TOPIC]
    assert bodies == [one.body for one in sent if one is not hit]
    assert to_json(gaps[0])["unreadableTo"] == behind.place


def test_json_says_everything_and_bodies_are_readable(tmp_path: Path) -> None:
    store = open_files(tmp_path)
    store.create_topic(PLAIN, {"name": PLAIN})
    tail = store.tail(PLAIN, 3)
    text = "größer " * 20
    packed = zlib.compress(text.encode())
    for body, sys_flag in ((text.encode(), 0), (b"\xff\x00", 0), (packed, 1)):
        shape = (len(text.encode()), 0) if sys_flag else None
        properties = b"TAGS\x01red\x02KEYS\x01a b\x02"
        entry = make_entry(
            tail, body, properties, born_ms=5, born_host=HOST, sys_flag=sys_flag, metaq_shape=shape
        )
        store.append([entry])
    store.close()
    found = [to_json(record) for record in messages(tmp_path, topic=PLAIN)]
    assert [value.get("body") for value in found] == [text, None, text]
    assert found[1]["bodyBase64"] == "/wA="
    first = found[0]
    assert (first["topic"], first["queue"], first["queueOffset"]) == (PLAIN, 3, 0)
    assert (first["bornMs"], first["bornHost"]) == (5, "127.0.0.1:10911")
    assert first["properties"]["TAGS"] == "red"
    assert first["metaqPosition"] == 0
    assert found[1]["metaqPosition"] > 0
    assert orjson.loads(orjson.dumps(found)) == found


def test_a_compressed_body_that_cannot_be_inflated_is_shown_as_it_is(tmp_path: Path) -> None:
    store = open_files(tmp_path)
    store.create_topic("rocket", {"name": "rocket", "dual": False})
    tail = store.tail("rocket", 0)
    store.append([make_entry(tail, b"not zlib", born_ms=5, born_host=HOST, sys_flag=1)])
    store.close()
    (record,) = messages(tmp_path, topic="rocket")
    assert readable_body(record) == b"not zlib"


def test_nothing_is_changed_and_a_running_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADataFolderError):
        dump(tmp_path)
    store = open_files(tmp_path)
    with pytest.raises(DataFolderLockedError):
        dump(tmp_path)
    store.close()
    with pytest.raises(ValueError, match="a topic is needed"):
        dump(tmp_path, queue_id=1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert messages(tmp_path) == []
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
