"""An original slave on a master of ours: what it asks for, and that its partitions become equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body
from imago_wire.hot import metaq_whole

if TYPE_CHECKING:
    from pathlib import Path

FETCH_BYTES = 1 << 20
PARTITION = "topics.test.queues=1"


class Slave:
    """Asks as the original does (`metaslave`), and appends whole messages to a log of its own."""

    def __init__(self, peer: MetaqPeer, fetch_bytes: int = FETCH_BYTES) -> None:
        self.peer, self.fetch_bytes = peer, fetch_bytes
        self.start = 0
        self.log = b""

    async def begin(self) -> None:
        """Learn where the master's partition begins."""
        answer = await self.peer.ask(b"offset test meta-slave-group_0 0 0 -2147483645\r\n")
        head, _, text = answer.partition(b"\r\n")
        assert head == b"result 200 %d -2147483645" % len(text)
        self.start = int(text)

    async def follow(self) -> bytes:
        """Fetch until there is nothing more; return the last answer."""
        while True:
            at = self.start + len(self.log)
            request = b"get test meta-slave-group_0 0 %d %d 7\r\n" % (at, self.fetch_bytes)
            answer = await self.peer.ask(request)
            if not answer.startswith(b"value "):
                return answer
            block = value_body(answer)
            self.log += block[: metaq_whole(block)]


async def put(peer: MetaqPeer, first: int, last: int) -> None:
    """Put messages of many sizes, every third with an attribute."""
    for number in range(first, last):
        flag = int(number % 3 == 0)
        prefix = b"\0\0\0\3tag" if flag else b""
        body = prefix + b"%d" % number * (number * 7 % 50 * 3)
        put_place(await peer.ask(put_frame("test", 0, body, flag=flag)))


def contents(folder: Path) -> dict[int, bytes]:
    """Return MetaQ's own files of the partition, by where they begin."""
    return {int(path.stem): path.read_bytes() for path in folder.rglob("test-0/*.meta")}


async def test_a_slave_asks_and_is_answered_as_by_the_original(tmp_path: Path) -> None:
    async with running_broker(tmp_path, PARTITION) as broker, metaq_peer(broker.metaq_port) as peer:
        for _ in range(3):
            put_place(await peer.put("test", 0, b"hello"))
        slave = Slave(peer)
        await slave.begin()
        answer = await slave.follow()
        text = b"Could not find message at position 75"
        assert answer == b"result 404 %d 7\r\n%b" % (len(text), text)
        assert (slave.start, len(slave.log)) == (0, 75)
        missing = await peer.ask(b"offset test meta-slave-group_0 1 0 8\r\n")
        text = b"The topic `test` in partition `1` is not exists"
        assert missing == b"result 404 %d 8\r\n%b" % (len(text), text)


async def test_a_slave_has_the_bytes_of_the_master_over_restarts_of_both(tmp_path: Path) -> None:
    settings = (PARTITION, "store.metaq_segment_bytes_max=4096")
    slave_log = b""
    for first in range(0, 90, 30):
        async with (
            running_broker(tmp_path, *settings) as broker,
            metaq_peer(broker.metaq_port) as peer,
        ):
            broker.topics.materialise("test")
            await put(peer, first, first + 15)
            slave = Slave(peer, fetch_bytes=700)
            slave.log = slave_log
            await slave.follow()
            await put(peer, first + 15, first + 30)
            await slave.follow()
            slave_log = slave.log
            assert len(slave_log) == broker.store.position_range("test", 0)[1]
    files = contents(tmp_path)
    assert len(files) > 2
    start, joined = min(files), b"".join(data for _, data in sorted(files.items()))
    assert joined == slave_log[start:]
