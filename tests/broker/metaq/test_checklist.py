"""Points of docs/metaq.md's checklist that no test elsewhere is about; and that each has a test."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_place, value_body

if TYPE_CHECKING:
    from imago_broker.app import Broker

ROOT = Path(__file__).parents[3]
POINTS = 18


def rows() -> list[tuple[int, str, str]]:
    """Number, what, and tests, of each row of the page's checklist."""
    page = (ROOT / "docs" / "metaq.md").read_text(encoding="utf-8")
    table = page.partition("## Checklist")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)
    return [(int(number), what, tests) for number, what, tests in found]


def test_every_point_has_a_row_and_every_row_tests_that_are_there() -> None:
    assert [number for number, _, _ in rows()] == list(range(1, POINTS + 1))
    for number, _, tests in rows():
        named = re.findall(r"`(tests/[^`:]+\.py)::(\w+)`", tests)
        assert named or tests == "not served", number
        for path, name in named:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert f"def {name}(" in text, f"point {number}: {path} has no {name}"


def log_file(folder: Path) -> Path:
    return next(iter(sorted((folder / "commitlog").iterdir())))


def overwrite(path: Path, what: bytes, by: bytes) -> None:
    """Replace bytes that stand in the file once."""
    content = path.read_bytes()
    assert content.count(what) == 1
    with path.open("r+b") as file:
        file.seek(content.index(what))
        file.write(by)


async def test_point_7_a_consumer_passes_a_message_with_a_wrong_byte(tmp_path: Path) -> None:
    topic = "topics.test.queues=1"
    async with running_broker(tmp_path, topic) as broker, metaq_peer(broker.metaq_port) as peer:
        for body in (b"first", b"wrong", b"third"):
            put_place(await peer.put("test", 0, body))
    overwrite(log_file(tmp_path), b"wrong", b"wrOng")
    async with running_broker(tmp_path, topic) as broker, metaq_peer(broker.metaq_port) as peer:
        assert await consumed(broker, peer, 0) == [b"first", b"third"]
        place = await peer.ask(b"offset test g 0 30 5\r\n")
        assert place.startswith(b"result 200 "), "a consumer that saw it asks where to go on"
        assert put_place(await peer.put("test", 0, b"later"))[2] == 75, "positions stay"
        assert await consumed(broker, peer, 50) == [b"third", b"later"]


async def consumed(broker: Broker, peer: MetaqPeer, position: int) -> list[bytes]:
    """Read as the original consumer does: on behind what it got, or where a 301 sends it.

    Told that there is nothing, it comes again.
    """
    found: list[bytes] = []
    while position < broker.store.position_range("test", 0)[1]:
        answer = await peer.get("test", 0, position)
        if answer.startswith(b"result 301"):
            position = int(answer.partition(b"\r\n")[2])
            continue
        if answer.startswith(b"result 404"):
            broker.store.tick()
            continue
        data = value_body(answer)
        position += len(data)
        while data:
            size = 20 + int.from_bytes(data[:4], "big")
            found.append(data[20:size])
            data = data[size:]
    return found


async def test_point_16_a_torn_last_message_is_cut_and_its_place_is_used_again(
    tmp_path: Path,
) -> None:
    topic = "topics.test.queues=1"
    async with running_broker(tmp_path, topic) as broker, metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("test", 0, b"whole"))
        put_place(await peer.put("test", 0, b"torn-in-the-middle"))
        await broker.stop(clean=False)
    path = log_file(tmp_path)
    content = path.read_bytes()
    at = content.index(b"torn-in-the-middle") + 4
    with path.open("r+b") as file:  # what a power cut leaves: blocks that never came
        file.seek(at)
        file.write(bytes(len(content) - at))
    async with running_broker(tmp_path, topic) as broker, metaq_peer(broker.metaq_port) as peer:
        assert await consumed(broker, peer, 0) == [b"whole"]
        assert put_place(await peer.put("test", 0, b"again"))[2] == 25
        assert await consumed(broker, peer, 0) == [b"whole", b"again"]


@pytest.mark.parametrize(
    "request_line",
    [b"put test 1 5 0 7\r\nhello", b"put test 1 5 0 907060870 7\r\nhello"],
    ids=["up to 1.4.3", "from 1.4.4"],
)
async def test_point_17_old_clients_put_without_a_checksum(
    peer: MetaqPeer, request_line: bytes
) -> None:
    assert put_place(await peer.ask(request_line))[1:] == (1, 0)
    assert value_body(await peer.get("test", 1, 0)).endswith(b"hello")


async def test_point_18_a_closed_partition_refuses_both_in_the_captured_words(
    broker: Broker, peer: MetaqPeer
) -> None:
    put_place(await peer.put("test", 0, b"x"))
    broker.topics.handles.close_partitions("test", 0, 0)
    url = f"meta://127.0.0.1:{broker.metaq_port}"
    detail = (
        f"Put message to [broker '{url}'] [partition 'test-0'] failed."
        "Detail:partition[0-0] has been closed"
    ).encode()
    assert await peer.put("test", 0, b"x") == b"result 403 %d 1\r\n%b" % (len(detail), detail)
    assert await peer.get("test", 0, 0) == b"result 403 30 5\r\nPartition[0-0] has been closed"
    assert (await peer.ask(b"offset test g 0 0 5\r\n")).startswith(b"result 200 ")
