"""What one user keeps is seen by no other, whatever is asked: two users, and every byte is read.

Ann puts a mark of its own into everything that she may keep: names, bodies, properties, half
messages, timers, progress, transactions, her own account. Eve, a user with all rights to what
begins with `eve`, asks every code, command and route, with all of Ann's names, ids and offsets in
all of their places; so does somebody without credentials. No byte that either receives may have a
mark, other than those in their very request; and nothing that Ann keeps is another one afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import aiohttp
import pytest

from imago_broker.admin.routes import ROUTES
from imago_broker.features.catalogue import BROKER_RIGHTS
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.quotas import Limit, QuotaSubject, SubjectKind
from imago_broker.model.access.users import User, new_token
from imago_broker.model.names import TIMER_TOPIC, reply_topic
from imago_broker.service.access.access_records import KINDS as ACCESS_KINDS
from imago_broker.service.delays.timers.timer_bucket import bucket_of
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
from imago_testing.peers.questions import (
    REQUEST_SECONDS_MAX,
    WAITS,
    ask_everything,
    ask_exactly,
    ask_metaq,
    ask_routes,
    copies,
    positions,
)
from imago_testing.peers.remoting import send_ext
from imago_testing.searching import seldom
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig

NEVER_SHOWN = {"password"}
"""What even an administrator is not shown."""
META_KINDS: Final = (
    *("topic", "queue", "group", "offset", "lock", "request-mode", "static-topic", *ACCESS_KINDS),
    *("transaction", "metaq-transaction", "pop", "timer", "delay"),
)
COMMON_KINDS: Final = {"access-setting"}
"""Records about everybody."""
REPLIES: Final = reply_topic("imago")
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
    replying = AccessRule(Resource(AccessKind.TOPIC, REPLIES), frozenset({Operation.PUBLISH}))
    access.put_account(ann, [*rules("zQ"), *mine, replying], BY)
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


@pytest.mark.parametrize("who", seldom(["eve", "nobody"]))
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


def kept(person: Person) -> dict[str, object]:
    """Return all that is Ann's, and what holds for everybody."""
    broker, store = person.broker, person.broker.store
    broker.offsets.flush()
    found: dict[str, object] = {}
    for kind in META_KINDS:
        for key, value in store.meta(kind).items():
            of_ann = any(mark in f"{key} {value}" for mark in MARKS.values())
            if kind in COMMON_KINDS or (of_ann and not key.startswith(OWN_GROUP)):
                found[f"{kind} {key}"] = json.loads(json.dumps(value, default=str))
    for topic in (THEIRS, f"%RETRY%{THEIR_GROUP}", f"%DLQ%{THEIR_GROUP}"):
        found[f"messages of {topic}"] = store.queue_range(topic, 0)
    clients = broker.rocketmq.clients.registry
    consumers = clients.consumers(THEIR_GROUP)
    found["consumers"] = sorted(consumers.client_ids) if consumers is not None else []
    found["open transactions"] = sorted(broker.rocketmq.transactions.service.halves)
    for copy in copies(person, TIMER_TOPIC):
        bucket = bucket_of(int(copy.text(b"TIMER_OUT_MS") or 0))
        found[f"timers {bucket}"] = store.queue_range(TIMER_TOPIC, bucket)
    return found


@pytest.mark.parametrize("who", seldom(["eve", "nobody"]))
async def test_nobody_changes_what_another_keeps(people: dict[str, Person], who: str) -> None:
    person, broker = people[who], people[who].broker
    before = kept(person)
    await ask_exactly(person)
    await ask_everything(person, codes=lambda code: code not in WAITS)
    await ask_metaq(person)
    headers = {}
    if who == "eve":
        user, token = new_token(broker.core.access.users["eve"], expires_ms=0, note="")
        broker.core.access.put_user(user, BY)
        headers = {"Authorization": f"Bearer {token}"}
    await ask_routes(person, headers)
    assert changes(before, kept(person)) == {}


@pytest.mark.full
async def test_the_search_finds_what_may_be_changed(people: dict[str, Person]) -> None:
    """The same requests by who may do everything: what never changes here is never compared."""
    root = people["root"]
    before = kept(root)
    await ask_exactly(root)
    await ask_everything(root, codes=lambda code: code not in WAITS)
    found = {what.split()[0] for what in changes(before, kept(root))}
    assert found >= {"open", "timers", "messages", "offset", "pop", "group"}
    assert found >= {"access-user", "access-quota", "access-setting"}


def changes(before: dict[str, object], after: dict[str, object]) -> dict[str, object]:
    return {
        what: (before.get(what), after.get(what))
        for what in {*before, *after}
        if before.get(what) != after.get(what)
    }


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
    sent = send_ext(REPLIES, 0, properties(**replied), a=MARKS["producer"])
    await ann.ask(port, Code.SEND_REPLY_MESSAGE_V2, sent, MARKS["reply"].encode())
    async with asyncio.timeout(REQUEST_SECONDS_MAX):
        await owner.request(Code.PUSH_REPLY_MESSAGE_TO_CLIENT)
    # Nor while Ann's client is away for a moment, nor does Eve reach it by a topic of her own.
    await ann.close()
    taken = {"clientID": MARKS["client"], "producerDataSet": [{"groupName": THEIR_GROUP}]}
    await eve.ask(port, Code.HEART_BEAT, {}, json.dumps(taken).encode())
    answer = await ann.ask(port, Code.SEND_REPLY_MESSAGE_V2, sent, MARKS["reply"].encode())
    assert answer is not None
    assert "not found" in str(answer.remark)
    answer = await eve.ask(
        port, Code.SEND_REPLY_MESSAGE_V2, send_ext(OWN, 0, properties(**replied)), b"forged"
    )
    assert answer is not None
    assert answer.code == ResponseCode.NO_PERMISSION
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
