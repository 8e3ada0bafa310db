"""All questions that one user can ask about what another keeps, with its names, ids and places."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from imago_broker.admin.routes import ROUTES
from imago_broker.features.catalogue import BROKER_RIGHTS
from imago_broker.model.names import HALF_TOPIC, TIMER_TOPIC
from imago_broker.processors.rocketmq.access.rights import NAME_RIGHTS
from imago_broker.service.puts.copies import read_copy
from imago_testing.peers.listening import (
    MARKS,
    OWN,
    OWN_GROUP,
    THEIR_GROUP,
    THEIRS,
    make,
)
from imago_testing.peers.signing import GROUP, TOPIC, valid_request
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.texts.handles import RecallHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from imago_broker.app import Broker
    from imago_broker.service.puts.copies import StoredCopy
    from imago_testing.peers.listening import Person

REQUEST_SECONDS_MAX: Final = 30


def replaced(ext: Mapping[str, str], body: bytes, topic: str, group: str) -> tuple[Any, bytes]:
    """Return a valid request about other names."""
    names = {TOPIC: topic, GROUP: group}
    told = {name: names.get(value, value) for name, value in ext.items()}
    for old, new in names.items():
        body = body.replace(f'"{old}"'.encode(), f'"{new}"'.encode())
    return told, body


def positions(broker: Broker) -> list[int]:
    """Return the log offset of every record."""
    found, offset = [], broker.store.log_start
    while offset < broker.store.high_watermark:
        record = broker.store.record_at(offset)
        assert record is not None
        found.append(offset)
        offset += len(record)
    return found


OFFSETS = ("offset", "commitLogOffset", "queueOffset", "msgId", "offsetMsgId")
"""Fields that name a message, or its place."""
WAITS = {Code.GET_CONSUMER_RUNNING_INFO, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS}
"""Asked of a client, whose answer is waited for: none here answers."""


def requests(code: int, offsets: list[int]) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield what is worth asking of a code: all of Ann's names and places where one can stand."""
    ext, body = valid_request(code, offset=offsets[0])
    names = itertools.product((THEIRS, OWN), (THEIR_GROUP, OWN_GROUP))
    seen = set()
    for topic, group in names:
        told, text = replaced(ext, body, topic, group)
        key = (*sorted(told.items()), text)
        if key not in seen:
            seen.add(key)
            yield told, text
    told, text = replaced(ext, body, OWN, OWN_GROUP)
    by_offset = [name for name in OFFSETS if name in told]
    host = "7F00000100000000"
    for at in offsets if by_offset else ():
        place = {name: str(at) for name in by_offset if name in OFFSETS[:3]}
        ids = {name: f"{host}{at:016X}" for name in by_offset if name in OFFSETS[3:]}
        yield {**told, **place, **ids}, text
    for name in ("key", "clientId", "clientID", "producerGroup", "group", "username", "accessKey"):
        for kind in ("unique", "key", "client", "producer", "user") if name in told else ():
            yield {**told, name: MARKS[kind]}, text
    yield dict.fromkeys(told, ""), text
    yield {}, b""


async def ask_everything(person: Person, *, codes: Callable[[int], bool] = lambda _: True) -> int:
    """Ask both ports of RocketMQ; return how many requests that were."""
    broker, count = person.broker, 0
    for port, rights in (
        (broker.rocketmq_port, BROKER_RIGHTS),
        (broker.ports.fast_port, BROKER_RIGHTS),
        (broker.ports.namesrv_port, NAME_RIGHTS),
    ):
        for code in [each for each in (*rights, 1, 99, 32_000) if codes(each)]:
            for ext, body in requests(code, person.offsets) if code in rights else [({}, b"")]:
                make(broker)
                await asyncio.wait_for(person.ask(port, code, ext, body), REQUEST_SECONDS_MAX)
                count += 1
                public = rights is NAME_RIGHTS
                person.ear.check(f"{code} {ext}", f"{ext} {body!r}", public=public)
    return count


async def ask_metaq(person: Person) -> None:
    """Ask all commands of MetaQ, with all places."""
    broker = person.broker
    xid = f"XID:100:676c:6271:{MARKS['transaction']}"
    lines = [
        "stats",
        f"stats {THEIRS}",
        "stats topics",
        "version",
        "stats items",
        "stats help",
        f"offset {THEIRS} {THEIR_GROUP} 0 0",
        f"offset {OWN} {THEIR_GROUP} 0 0",
        *(f"get {THEIRS} {OWN_GROUP} 0 {at} 100000" for at in range(0, 400, 25)),
        *(f"get {OWN} {THEIR_GROUP} 0 {at} 100000" for at in range(0, 400, 25)),
        *(f"transaction {xid} s1 {kind}" for kind in ("COMMIT_TWO_PHASE", "ROLLBACK", "FORGET")),
        "transaction null s1 RECOVER",
        f"transaction {MARKS['transaction']} s1 RECOVER",
        "transaction XID:100:1:1:eve s1 RECOVER",
        f"sync {THEIRS} 0 1 0 1 -1",
    ]
    for line in lines:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.metaq_port)
        person.ear.listen(reader)
        writer.write(f"{line} 7\r\n".encode())
        writer.write(b"version 8\r\nquit\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(-1), REQUEST_SECONDS_MAX)
        writer.close()
        person.ear.check(f"metaq {line}", line)


def filled(path: str, names: Mapping[str, str]) -> str:
    """Return a route's path about these things; numbers are 0."""
    return re.sub(r"\{(\w+)(:[^{}]*)?\}", lambda m: names.get(m[1], "0"), path)


async def ask_routes(person: Person, headers: dict[str, str]) -> None:
    """Ask every route of the admin interface about Ann's things."""
    broker = person.broker
    names = {
        "topic": THEIRS,
        "group": THEIR_GROUP,
        "user": MARKS["user"],
        "key": f"XID:100:676c:6271:{MARKS['transaction']}",
        "subject": f"user:{MARKS['user']}",
        "name": MARKS["topic"],
        "number": "1",
        "shard": "0",
        "decision": "rollback",
        "function": "get",
    }
    own = {**names, "topic": OWN, "group": OWN_GROUP, "user": "eve", "subject": "topic:eve*"}
    queries = ["", f"?topic={OWN}", f"?topic={OWN}&queue=0&offset=0", f"?id={MARKS['unique']}"]
    queries += [f"?topic={THEIRS}&queue=0&offset=0", f"?topic={OWN}&key={MARKS['key']}"]
    queries += [f"?id=7F00000100000000{at:016X}" for at in person.offsets]
    queries += ["?from=0&to=9999999999999", f"?topic={THEIRS}&group=g&partition=0&offset=0"]
    url = f"http://127.0.0.1:{broker.ports.admin_port}"
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        for method, path, _, _ in ROUTES:
            many = queries if path == "/admin/v1/messages" or "function" in path else queries[:1]
            for told, query in itertools.product((names, own), many):
                full = filled(path, told) + query
                body: dict[str, str] | None = None if method == "GET" else {}
                make(broker)
                async with session.request(
                    method, url + full, json=body, headers=headers, allow_redirects=False
                ) as answer:
                    person.ear.heard += await answer.read()
                    person.ear.heard += str(answer.raw_headers).encode()
                public = path == "/metrics"
                person.ear.check(f"{method} {full}", full, public=public)


def copies(person: Person, topic: str) -> list[StoredCopy]:
    """Return the records of a topic that were there when the questions began."""
    records = map(person.broker.store.record_at, person.offsets)
    found = [read_copy(record) for record in records if record is not None]
    return [copy for copy in found if copy.topic == topic]


async def ask_exactly(person: Person) -> None:
    """Ask what ends Ann's transaction and takes her timer back: with all that she herself says, and
    with names of Eve's where one can stand."""
    port = person.broker.rocketmq_port
    for half in copies(person, HALF_TOPIC):
        told = {
            "producerGroup": MARKS["producer"],
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.physical_offset,
            "commitOrRollback": 12,
            "msgId": MARKS["unique"],
            "transactionId": MARKS["unique"],
        }
        for topic in (OWN, "", THEIRS):
            await person.ask(port, Code.END_TRANSACTION, {**told, "topic": topic})
        await person.ask(port, Code.END_TRANSACTION, told)
    for timer in copies(person, TIMER_TOPIC):
        due_ms = int(timer.text(b"TIMER_OUT_MS") or 0)
        for named, topic in itertools.product((OWN, THEIRS), repeat=2):
            handle = RecallHandle(named, "shard-0", due_ms, MARKS["unique"])
            told = {"producerGroup": "g", "topic": topic, "recallHandle": str(handle)}
            await person.ask(port, Code.RECALL_MESSAGE, told)
