"""`acl.audit`: what would be refused to clients is served, told and counted."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import generate_latest

from imago_broker.app.access import broker_hooks
from imago_broker.config.sections.security_sections import AclSection
from imago_broker.features.catalogue import BROKER_RIGHTS, LIMITED
from imago_broker.metrics import registry
from imago_broker.model.access.access import RULE, RUN, AccessKind, AccessRule, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.access.rights import (
    NAME_RIGHTS,
    Asked,
    known_to_nobody,
    open_to_all,
)
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.metaq import metaq_peer
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed, valid_request
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig
    from imago_broker.processors.rocketmq.access.rights import Right

BY = Actor("the tests", "nowhere")


@pytest.fixture
def config(config: BrokerConfig) -> BrokerConfig:
    return replace(config, acl=replace(config.acl, audit=True))


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield peer
    await peer.close()


def counts(broker: Broker) -> tuple[float, float]:
    """Return how many requests were denied, and how many would be, as Prometheus reads it."""
    text = generate_latest(registry(broker.collector)).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    denied, would = "imago_access_denied_total", "imago_access_would_be_denied_total"
    return float(lines[denied]), float(lines[would])


async def test_who_has_no_user_is_served_and_told(
    broker: Broker, peer: RemotingPeer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        answer = await peer.put("T", b"x", queue_id=0)
    assert answer.code == ResponseCode.SUCCESS
    assert counts(broker) == (0, 1)
    (told,) = [r.getMessage() for r in caplog.records if "access_" in r.getMessage()]
    assert told.startswith("access_would_be_denied peer=")
    assert "username cannot be null" in told


@pytest.mark.parametrize("secret", ["its own secret", "another secret"])
async def test_a_user_without_the_right_or_with_another_password_is_served(
    broker: Broker, peer: RemotingPeer, secret: str
) -> None:
    broker.core.access.put_user(User(name="ann", secret="its own secret"), BY)
    ext = dict(send_ext("T"))
    answer = await call_signed(peer, Code.SEND_MESSAGE_V2, ext, user="ann", secret=secret)
    assert answer.code == ResponseCode.SUCCESS
    assert counts(broker) == (0, 1)


async def test_metaq_is_served_and_told(broker: Broker, peer: RemotingPeer) -> None:
    del peer
    async with metaq_peer(broker.metaq_port) as metaq:
        assert (await metaq.put("T", 0, b"hello")).startswith(b"result 200 ")
        assert (await metaq.put("T", 0, b"x" * 70_000)).startswith(b"result 200 ")
    assert counts(broker) == (0, 2)


def runs_cluster(code: int, rights: Mapping[int, Right]) -> bool:
    """Whether a request gives rights or changes settings, by the table."""
    if rights[code] is open_to_all:
        return False
    ext, body = valid_request(code, offset=0)
    needs = rights[code](Asked(RemotingCommand(code=code, ext=ext, body=body), lambda _: None))
    return any(need.kind is AccessKind.CLUSTER and need.operations in (RUN, RULE) for need in needs)


def test_no_other_request_code_is_refused(broker: Broker) -> None:
    core = broker.core
    hooks: dict[bool, Any] = {
        audit: broker_hooks(
            broker.config,
            core.access,
            core.messages,
            core.quotas,
            rights=BROKER_RIGHTS,
            limited=LIMITED,
            known=known_to_nobody,
        )[0]
        for audit in (True, False)
    }
    channel = SimpleNamespace(address="10.0.0.1", certificate_user="")
    refused = 0

    def runs(code: int) -> bool:
        return code in BROKER_RIGHTS and runs_cluster(code, BROKER_RIGHTS)

    for code in (*BROKER_RIGHTS, 9999):
        command = RemotingCommand(code=code)
        exchange: Any = SimpleNamespace(command=command, channel=channel, user=None, accounts=())
        core.access.denials.audit = True
        with pytest.raises(RequestError) if runs(code) else suppress(ProtocolError):
            hooks[True].before(exchange)
        assert hooks[True].refused_by_header(exchange) is None
        core.access.denials.audit = False
        try:
            hooks[False].before(exchange)
        except RequestError:
            refused += 1
    assert refused > 90, "it is what would be refused"


@pytest.mark.parametrize("server", ["broker", "name service"])
@pytest.mark.parametrize("user", [None, "ann", "stranger", "root"])
async def test_what_runs_the_cluster_is_refused(
    broker: Broker, server: str, user: str | None
) -> None:
    """To strangers, without the right, and to who takes a name of somebody who has it."""
    access = broker.core.access
    access.put_user(User(name="ann", secret="its own secret"), BY)
    access.put_user(User(name="root", secret="another secret", is_super=True), BY)
    rights, port = BROKER_RIGHTS, broker.rocketmq_port
    if server == "name service":
        rights, port = NAME_RIGHTS, broker.ports.namesrv_port
    codes = [code for code in rights if runs_cluster(code, rights)]
    assert len(codes) > (20 if server == "broker" else 4)
    before, settings = access.records(), broker.rocketmq.settings.current
    for code in codes:
        ext, body = valid_request(code, offset=0)
        peer = await RemotingPeer.connect(port)
        if user is None:
            answer = await peer.call(code, ext, body)
        else:
            answer = await call_signed(peer, code, ext, body, user=user, secret="its own secret")
        assert answer.code == ResponseCode.NO_PERMISSION, (Code(code).name, answer)
        await peer.close()
    assert (access.records(), broker.rocketmq.settings.current) == (before, settings)
    assert counts(broker) == (len(codes), 0), "they were denied, not served"


async def test_nobody_makes_himself_a_super_user(broker: Broker, peer: RemotingPeer) -> None:
    access = broker.core.access
    access.put_user(User(name="root", secret="its own secret", is_super=True), BY)
    access.put_user(User(name="ann", secret="its own secret"), BY)
    rules = [AccessRule(Resource(AccessKind.CLUSTER), frozenset(RULE))]
    access.set_rules("ann", rules, BY)
    body = b'{"username":"root","password":"another","userType":"Super"}'
    answer = await peer.call(Code.AUTH_UPDATE_USER, {"username": "root"}, body)
    assert answer.code == ResponseCode.NO_PERMISSION
    for user, code in (
        ("ann", ResponseCode.SYSTEM_ERROR),  # only super users change super users
        ("root", ResponseCode.SUCCESS),
    ):
        answer = await call_signed(
            peer,
            Code.AUTH_UPDATE_USER,
            {"username": "root"},
            body,
            user=user,
            secret="its own secret",
        )
        assert answer.code == code, answer
    assert access.users["root"].secret == "another"


def test_only_access_control_without_it_refuses() -> None:
    assert not AclSection(audit=True).refuses
    assert AclSection(enabled=True).refuses
    assert not AclSection(enabled=True, audit=True).refuses
