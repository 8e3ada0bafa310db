"""Every request code, with no credentials, a wrong signature, without the right, and with it.

The requests, and the rights that they need, are made from the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from imago_broker.app.access import topics_at
from imago_broker.features.catalogue import BROKER_RIGHTS
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.namesrv.server import NameService
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.processors.rocketmq.access.access_hook import NOT_NAMED
from imago_broker.processors.rocketmq.access.rights import (
    NAME_RIGHTS,
    Asked,
    open_to_all,
)
from imago_broker.processors.rocketmq.table import build_processors
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.signing import TOPIC, call_signed, valid_request
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.app import Broker
    from imago_broker.model.access.access import Need
    from imago_broker.processors.rocketmq.access.rights import Right

BY = Actor("the tests", "nowhere")
SECRET = "secret-of-tester"
CALLERS: Final = (
    ("no credentials", None, ""),
    ("a wrong signature", "tester", "wrong"),
    ("an unknown user", "stranger", SECRET),
    ("no right", "tester", SECRET),
)


async def first_message(broker: Broker) -> int:
    """Store one message and return its log offset."""
    access = broker.core.access
    access.put_user(User(name="writer", is_super=True, secret=SECRET), BY)
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    ext, _ = valid_request(Code.SEND_MESSAGE_V2, offset=0)
    answer = await call_signed(peer, 310, ext, b"hello", user="writer", secret=SECRET)
    await peer.close()
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext["msgId"][-16:], 16)


def grant(need: Need) -> AccessRule:
    operations, kind, name = need
    cluster = kind is AccessKind.CLUSTER
    return AccessRule(Resource(kind, "" if cluster else name), frozenset({operations[-1]}))


async def test_every_served_code_has_a_right(broker: Broker) -> None:
    rows = build_processors(broker.rocketmq, broker.failed.get_loop()).main.rows
    names = NameService(NameServiceConfig(), broker.coordinator, broker.clock).table.rows
    assert set(rows) == set(BROKER_RIGHTS)
    assert set(names) == set(NAME_RIGHTS)


async def test_a_code_without_a_right_is_denied(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await first_message(broker)
    (hook,) = broker.ports.rocketmq.protocol_factory().server.table.hooks  # type: ignore[attr-defined]
    rest = {code: right for code, right in BROKER_RIGHTS.items() if code != Code.GET_MAX_OFFSET}
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    ext, body = valid_request(Code.GET_MAX_OFFSET, offset=0)
    answer = await call_signed(peer, 30, ext, body, user="writer", secret=SECRET)
    assert answer.code == ResponseCode.SUCCESS
    monkeypatch.setattr(hook, "_rights", rest)
    answer = await call_signed(peer, 30, ext, body, user="writer", secret=SECRET)
    assert answer.code == ResponseCode.NO_PERMISSION
    await peer.close()


class Cell:
    """One code on one port, asked by everybody."""

    def __init__(self, broker: Broker, port: int, code: int, right: Right, version: int) -> None:
        self._broker, self._port, self._code, self._right = broker, port, code, right
        self._version = version
        self._refused = 16 if version >= Version.V5_0_0 else 1

    async def faults(self, offset: int) -> list[str]:
        """Return what is wrong with how this code is guarded."""
        self._peer = await RemotingPeer.connect(self._port)
        try:
            self._ext, self._body = valid_request(self._code, offset=offset)
            if self._right is open_to_all:
                return ["is not open"] if await self._denied(None, "") else []
            return await self._guarded()
        finally:
            await self._peer.close()

    async def _guarded(self) -> list[str]:
        command = RemotingCommand(code=self._code, ext=self._ext, body=self._body)
        needs = list(self._right(Asked(command, topics_at(self._broker.store))))
        wrong = [] if needs else ["the request of this test needs no right"]
        self._have(())
        for what, user, secret in CALLERS:
            if not await self._denied(user, secret):
                wrong.append(f"served with {what}")
        for missing in needs:
            self._have(need for need in needs if need != missing)
            if not await self._denied("tester", SECRET):
                wrong.append(f"served without {missing}")
        self._have(needs)
        if await self._denied("tester", SECRET):
            wrong.append("denied with the right")
        return wrong

    def _have(self, needs: Iterable[Need]) -> None:
        access = self._broker.core.access
        access.set_white_addresses([], BY)
        access.put_user(User(name="tester", secret=SECRET), BY)
        access.set_rules("tester", [grant(need) for need in needs], BY)

    async def _denied(self, user: str | None, secret: str) -> bool:
        denials = self._broker.core.access.denials
        before, peer, version = denials.count, self._peer, self._version
        if user is None:
            answer = await peer.call(self._code, self._ext, self._body, version=version)
        else:
            answer = await call_signed(
                peer, self._code, self._ext, self._body, user=user, secret=secret, version=version
            )
        assert answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        denied = denials.count > before
        assert not denied or answer.code == self._refused, answer
        return denied


@pytest.mark.parametrize("version", [Version.V4_9_8, Version.V5_3_3])
@pytest.mark.parametrize("server", ["broker", "name service"])
async def test_the_matrix(broker: Broker, server: str, version: int) -> None:
    offset = await first_message(broker)
    rights, port = BROKER_RIGHTS, broker.rocketmq_port
    if server == "name service":
        rights, port = NAME_RIGHTS, broker.ports.namesrv_port
    wrong = {}
    for code, right in rights.items():
        if faults := await Cell(broker, port, code, right, version).faults(offset):
            wrong[Code(code).name] = faults
    assert wrong == {}


async def test_what_messages_are_meant_is_not_what_the_request_says(broker: Broker) -> None:
    """A right to one topic does not reach messages of another by their place in the log."""
    offset = await first_message(broker)
    access = broker.core.access
    access.put_user(User(name="tester", secret=SECRET), BY)
    every = frozenset({Operation.SUBSCRIBE, Operation.PUBLISH})
    rules = [
        AccessRule(Resource(AccessKind.TOPIC, "mine"), every),
        AccessRule(Resource(AccessKind.GROUP, "mine"), every),
    ]
    access.set_rules("tester", rules, BY)
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    for code, ext in (
        (Code.VIEW_MESSAGE_BY_ID, {"topic": "mine", "offset": f"+{offset}"}),
        (Code.VIEW_MESSAGE_BY_ID, {"topic": "mine", "offset": str(offset)}),
        (
            Code.CONSUMER_SEND_MSG_BACK,
            {"group": "mine", "originTopic": "mine", "offset": offset, "delayLevel": 0},
        ),
        (
            Code.END_TRANSACTION,
            {
                "topic": "mine",
                "producerGroup": "mine",
                "commitLogOffset": offset,
                "tranStateTableOffset": 0,
                "commitOrRollback": 8,
                "msgId": "x",
            },
        ),
        (
            Code.SEND_MESSAGE,
            {"topic": "mine", "b": TOPIC, "a": "p", "e": 0, "g": 0, "f": 0, "h": 0},
        ),
    ):
        answer = await call_signed(peer, code, ext, user="tester", secret=SECRET)
        named = TOPIC if code == Code.SEND_MESSAGE else NOT_NAMED
        assert (answer.code, f"Topic:{named} " in (answer.remark or "")) == (16, True), (
            answer.remark
        )
    await peer.close()


async def test_bodies_of_who_may_nothing_are_not_looked_at(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of megabytes takes the broker's time; only who is known may ask for that."""
    (hook,) = broker.ports.rocketmq.protocol_factory().server.table.hooks  # type: ignore[attr-defined]
    looked: list[int] = []

    def look(asked: Asked) -> Iterable[Need]:
        looked.append(asked.command.code)
        return BROKER_RIGHTS[asked.command.code](asked)

    monkeypatch.setattr(hook, "_rights", dict.fromkeys(BROKER_RIGHTS, look))
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    for code in BROKER_RIGHTS:
        answer = await peer.call(code, {}, b"[[")
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "username cannot be null.",
        )
    assert looked == []
    rule = AccessRule(Resource(AccessKind.TOPIC, "T"), frozenset({Operation.PUBLISH}))
    broker.core.access.set_rules("anonymous", [rule], BY)
    await peer.call(Code.HEART_BEAT, {}, b"[[")
    assert looked == [Code.HEART_BEAT]
    await peer.close()
