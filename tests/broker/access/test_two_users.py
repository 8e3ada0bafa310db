"""What one user keeps is seen by no other, whatever is asked: two users, and every byte is read.

Ann puts a mark of its own into everything that she may keep: names, bodies, properties, half
messages, timers, progress, transactions, her own account. Eve, a user with all rights to what
begins with `eve`, asks every code, command and route, with all of Ann's names, ids and offsets in
all of their places; so does somebody without credentials. No byte that either receives may have a
mark, other than those in their very request.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest

from imago_broker.admin.routes import ROUTES
from imago_broker.model.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.quotas import Limit, QuotaSubject, SubjectKind
from imago_broker.model.users import User, new_token
from imago_broker.processors.rocketmq.rights import BROKER_RIGHTS, NAME_RIGHTS
from imago_testing.peers.admin import TOKEN
from imago_testing.peers.listening import (
    BY,
    KINDS,
    MARKS,
    OWN,
    OWN_GROUP,
    PASSWORD,
    THEIR_GROUP,
    THEIR_PASSWORD,
    THEIRS,
    Ear,
    Person,
    keep,
    make,
    properties,
    rules,
)
from imago_testing.peers.remoting import send_ext
from imago_testing.peers.signing import GROUP, TOPIC, valid_request
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig

pytestmark = pytest.mark.timeout(600)
NEVER_SHOWN = {"password"}
"""What even an administrator is not shown."""
REQUEST_SECONDS_MAX = 30
INTERVAL_MS = 50
CHECKS = 8
"""Of one half message: enough that another producer of the group would have its turn."""


@pytest.fixture
def config(config: BrokerConfig) -> BrokerConfig:
    """Producers are asked again and again what became of their transactions."""
    settings = replace(
        config.rocketmq,
        transaction_timeout_ms=0,
        transaction_check_interval_ms=INTERVAL_MS,
        transaction_checks_max=10_000,
    )
    return replace(config, rocketmq=settings)


@pytest.fixture
async def people(broker: Broker) -> AsyncIterator[dict[str, Person]]:
    """Ann's things are there; `root` may see all of them."""
    access = broker.core.access
    ann, _ = new_token(User(name="ann", secret=THEIR_PASSWORD), expires_ms=0, note=MARKS["note"])
    mine = [AccessRule(Resource(AccessKind.TOPIC, MARKS["resource"]), frozenset(Operation))]
    access.put_account(ann, [*rules("zQ"), *mine], BY)
    access.put_user(User(name=MARKS["user"], secret="password"), BY)
    limits = {Limit.PRODUCER_REQUESTS: 1_000_000}
    access.set_quotas(QuotaSubject(SubjectKind.USER, MARKS["user"]), limits, BY)
    access.put_account(User(name="eve", secret=PASSWORD), rules("eve"), BY)
    access.put_user(User(name="root", secret="secret-of-root", is_super=True), BY)
    found = {
        "ann": Person(broker, "ann", THEIR_PASSWORD),
        "eve": Person(broker, "eve", PASSWORD),
        "nobody": Person(broker, None),
        "root": Person(broker, "root", "secret-of-root"),
    }
    make(broker)
    await keep(found["ann"])
    offsets = positions(broker)
    for person in found.values():
        person.offsets = offsets
    yield found
    for person in found.values():
        await person.close()


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


@pytest.mark.parametrize("who", ["eve", "nobody"])
async def test_nobody_sees_what_another_keeps(people: dict[str, Person], who: str) -> None:
    person, broker = people[who], people[who].broker
    codes = lambda code: code not in WAITS  # noqa: E731
    count = await ask_everything(person, codes=codes)
    assert count > 2 * len(BROKER_RIGHTS) * 5
    await ask_metaq(person)
    headers = {}
    if who == "eve":
        user, token = new_token(broker.core.access.users["eve"], expires_ms=0, note="")
        broker.core.access.put_user(user, BY)
        headers = {"Authorization": f"Bearer {token}"}
    await ask_routes(person, headers)
    seen = sorted(
        {(what.split()[0] if what[0].isdigit() else what, kind) for what, kind in person.ear.leaks}
    )
    assert seen == []


async def test_what_brokers_send_unasked_goes_to_its_owner_alone(
    people: dict[str, Person],
) -> None:
    """Checks of transactions, replies, news of a group; Eve says that she were Ann's client."""
    eve, ann, broker = people["eve"], people["ann"], people["eve"].broker
    port = broker.rocketmq_port
    for client, consumes in itertools.product((MARKS["client"], "eve-client"), (True, False)):
        subscribed = [{"groupName": OWN_GROUP, "subscriptionDataSet": [{"topic": OWN}]}]
        beat = {
            "clientID": client,
            "producerDataSet": [{"groupName": MARKS["producer"]}, {"groupName": THEIR_GROUP}],
            "consumerDataSet": subscribed if consumes else [],
        }
        await eve.ask(port, Code.HEART_BEAT, {}, json.dumps(beat).encode())
    owner = await ann.peer(port)
    async with asyncio.timeout(REQUEST_SECONDS_MAX):
        for _ in range(CHECKS):
            await owner.request(Code.CHECK_TRANSACTION_STATE)
    replied = {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": MARKS["key"],
        "REPLY_TO_CLIENT": MARKS["client"],
    }
    sent = send_ext(THEIRS, 0, properties(**replied), a=MARKS["producer"])
    await ann.ask(port, Code.SEND_REPLY_MESSAGE_V2, sent, MARKS["reply"].encode())
    async with asyncio.timeout(REQUEST_SECONDS_MAX):
        await owner.request(Code.PUSH_REPLY_MESSAGE_TO_CLIENT)
    await eve.ask(port, Code.GET_MAX_OFFSET, {"topic": OWN, "queueId": 0})
    eve.ear.check("unasked", "")
    assert eve.ear.leaks == []
    ann.ear.check("unasked", "")
    assert ann.ear.found >= {"half", "reply"}


async def test_the_search_finds_what_may_be_seen(people: dict[str, Person]) -> None:
    """The same questions by who may do everything: what is never found here is never searched."""
    root = people["root"]
    reading = (
        *(Code.PULL_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.QUERY_MESSAGE, Code.AUTH_LIST_USER),
        *(Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_PRODUCER_CONNECTION_LIST),
        *(Code.AUTH_LIST_ACL, Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        *(Code.GET_ALL_PRODUCER_INFO, Code.GET_ALL_CONSUMER_OFFSET),
    )
    await ask_everything(root, codes=lambda code: code in reading)
    await ask_routes_reading(root)
    assert root.ear.found >= set(KINDS) - NEVER_SHOWN - NOT_READ
    assert root.ear.found & NEVER_SHOWN == set()


NOT_READ: Final = {"half", "timer", "prepared", "reply"}
"""What waits for others, or was told to nobody: an administrator is not handed it either."""


async def ask_routes_reading(person: Person) -> None:
    url = f"http://127.0.0.1:{person.broker.ports.admin_port}"
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession() as session:
        for method, path, _, _ in ROUTES:
            if method == "GET" and "{" not in path:
                async with session.get(url + path, headers=headers) as answer:
                    person.ear.heard += await answer.read()
                person.ear.check(f"{method} {path}", path)


@pytest.mark.parametrize("kind", KINDS)
def test_marks_are_found_however_they_are_written(kind: str) -> None:
    mark = MARKS[kind].encode()
    told = (
        mark,
        mark.hex().encode(),
        *(base64.b64encode(b"a" * n + mark + b"b") for n in range(9)),
    )
    for text in told:
        ear = Ear()
        ear.heard += b"before " + text + b" after"
        ear.check("what", "")
        assert ear.leaks == [("what", kind)]
    ear = Ear()
    ear.heard += mark
    ear.check("what", f"about {MARKS[kind]}")
    assert ear.leaks == []
