"""What the admin HTTP port makes of input that no client sends."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.wild import WildPeer, says_nothing_of_itself
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("harmless")]


def request(
    method: str, path: str, body: bytes = b"", *, headers: str = "", length: object = None
) -> bytes:
    size = len(body) if length is None else length
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return head.encode() + f"Content-Length: {size}\r\n{headers}\r\n".encode() + body


def reaction(broker: BrokerProcess, data: bytes) -> bytes:
    """What comes back until the connection is closed."""
    with WildPeer(broker.admin) as peer:
        peer.send(data)
        return peer.read_to_end()


GZIP = "Content-Encoding: gzip\r\n"
TOPIC = "/admin/v1/topics/wild-http"
MESSAGES = "/admin/v1/messages?topic=wild"
REFUSED = {
    "unknown path": request("GET", "/admin/v1/nothing"),
    "unknown method": request("BREW", "/admin/v1/status"),
    "method that does not apply": request("DELETE", "/admin/v1/status"),
    "path that climbs": request("GET", "/admin/v1/topics/../../../etc/passwd"),
    "path that climbs, encoded": request("PUT", "/admin/v1/topics/..%2f..%2fx", b'{"queues":1}'),
    "topic with a zero byte": request("PUT", "/admin/v1/topics/a%00b", b'{"queues":1}'),
    "topic of 4 KiB": request("PUT", "/admin/v1/topics/" + "t" * 4096, b'{"queues":1}'),
    "body that is no JSON": request("PUT", TOPIC, b"queues: 3"),
    "body that is a list": request("PUT", TOPIC, b"[]"),
    "body that is no text": request("PUT", TOPIC, b"\xff\xfe"),
    "body as deep as it is long": request("PUT", TOPIC, b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "unknown setting": request("PUT", TOPIC, b'{"queuse":3}'),
    "queues that are no number": request("PUT", TOPIC, b'{"queues":"three"}'),
    "queues below zero": request("PUT", TOPIC, b'{"queues":-3}'),
    "a thousand million queues": request("PUT", TOPIC, b'{"queues":1000000000}'),
    "queues in part": request("PUT", TOPIC, b'{"queues":1.5}'),
    "unknown level": request("PUT", TOPIC, b'{"queues":1,"acknowledgement":"maybe"}'),
    "group at a path": request("PUT", "/admin/v1/groups/..%2fx", b"{}"),
    "reset of nothing": request("POST", "/admin/v1/groups/nobody/reset", b"{}"),
    "unknown key of the configuration": request("PATCH", "/admin/v1/config", b'{"a.b":1}'),
    "key that may not change": request("PATCH", "/admin/v1/config", b'{"broker.data_dir":"/x"}'),
    "messages of no topic": request("GET", "/admin/v1/messages"),
    "messages at no number": request("GET", MESSAGES + "&queue=x&offset=y"),
    "messages of a queue that is not": request("GET", MESSAGES + "&queue=999999999&offset=0"),
    "messages above 64 bits": request("GET", MESSAGES + "&queue=0&offset=99999999999999999999"),
    "page of a negative size": request("GET", "/admin/v1/topics?limit=-1"),
    "negative length": request("PUT", TOPIC, b"{}", length=-5),
    "length that is no number": request("PUT", TOPIC, b"{}", length="two"),
    "two lengths": request("PUT", TOPIC, b'{"queues":1}', headers="Content-Length: 3\r\n"),
    "broken chunks": request("PUT", TOPIC, headers="Transfer-Encoding: chunked\r\n") + b"zz\r\n{}",
    "body that is said to be packed": request("POST", "/login", b"abc", headers=GZIP),
    "body that is packed": request("POST", "/login", gzip.compress(b"{}"), headers=GZIP),
    "request line of 64 KiB": request("GET", "/" + "a" * 65_536),
    "header of 64 KiB": request("GET", "/healthz", headers="X: " + "x" * 65_536 + "\r\n"),
    "thousands of headers": request("GET", "/healthz", headers="X: y\r\n" * 50_000),
    "another protocol: MetaQ": b"put wild 0 5 0 1\r\nhello",
    "another protocol: RocketMQ": b'\x00\x00\x00\x20\x00\x00\x00\x1c{"code":105,"flag":0}',
    "another protocol: TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_bad_request_is_told_so(broker: BrokerProcess, data: bytes) -> None:
    answer = reaction(broker, data)
    says_nothing_of_itself(answer)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer[:200]


def test_error_has_cause_and_cure(broker: BrokerProcess) -> None:
    answer = reaction(broker, request("PUT", TOPIC, b'{"queuse":3}'))
    error = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert set(error) == {"error", "message", "cure"}
    assert "queuse" in error["message"]


def test_body_over_the_limit_is_refused_and_not_kept(broker: BrokerProcess) -> None:
    before = broker.resident_bytes()
    with WildPeer(broker.admin) as peer:
        peer.send(request("PUT", TOPIC, length=1 << 30))
        peer.send_until_refused(bytes(65536) for _ in range((1 << 28) // 65536))
        peer.half_close()
        answer = peer.read_to_end()
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert broker.resident_bytes() - before <= 16 << 20


@pytest.mark.parametrize("path", seldom(["/login", "/put/wild", TOPIC]))
def test_a_packed_body_is_not_unpacked(broker: BrokerProcess, path: str) -> None:
    """Half a megabyte that would be half a gigabyte, of somebody whom nobody knows yet."""
    before = broker.resident_bytes()
    bomb = gzip.compress(bytes(512 << 20), compresslevel=1 if path == TOPIC else 9)[: 1 << 20]
    answer = reaction(broker, request("PUT" if path == TOPIC else "POST", path, bomb, headers=GZIP))
    assert answer.startswith(b"HTTP/1.1 4"), answer[:200]
    assert broker.resident_bytes() - before <= 16 << 20


def test_page_of_a_thousand_million_is_cut(broker: BrokerProcess) -> None:
    answer = reaction(broker, request("GET", "/admin/v1/topics?limit=1000000000"))
    assert answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 400"))
