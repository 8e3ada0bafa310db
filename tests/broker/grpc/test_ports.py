"""The gRPC port: with and without TLS, who may do what, and what a connection may cost."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509

from imago_broker.config import load
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.registry.cluster import ShardQueues, TopicPlacement
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.server.tls.self_signed import self_signed
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.sdk_peer import HEADERS, SdkFrames, SdkPeer, signed_headers
from imago_wire.grpc import frames
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import MessageType, encoded, make

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

ROUTE = make("QueryRouteRequest", topic=make("Resource", name="plain"))


async def test_one_port_has_tls_and_plain_text(broker: Broker) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports.grpc_port, ssl=context)
    tls = writer.get_extra_info("ssl_object")
    assert tls.selected_alpn_protocol() == "h2"
    secured = SdkPeer(reader, writer)
    writer.write(secured.frames.greeting())
    plain = await SdkPeer.connect(broker.ports.grpc_port)
    for peer in (secured, plain):
        assert (await peer.call("QueryRoute", ROUTE)).status.code == SdkCode.OK
        await peer.close()


def test_what_signs_itself_is_its_own_authority_and_one_process_alone(tmp_path: Path) -> None:
    now = datetime(2026, 11, 30, tzinfo=UTC)
    made = self_signed("imago", now)
    assert made != self_signed("imago", now)
    both = tmp_path / "both.pem"
    both.write_bytes(made)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(both)
    one = x509.load_pem_x509_certificate(made)
    one.verify_directly_issued_by(one)
    assert one.not_valid_before_utc < now < one.not_valid_after_utc


@pytest.mark.parametrize(
    ("rocketmq", "grpc", "opened"),
    [(10911, -1, 8081), (0, -1, 0), (10921, -1, -1), (10921, 8081, 8081), (10911, 9000, 9000)],
)
def test_8081_belongs_to_rocketmqs_own_port(rocketmq: int, grpc: int, opened: int) -> None:
    config = load(f"[rocketmq]\nport = {rocketmq}\ngrpc_port = {grpc}\n")
    assert config.grpc_port == opened


async def test_no_port_is_opened_where_none_is_wanted(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "rocketmq.grpc_enabled=false") as broker:
        assert broker.ports.grpc_port == 0
        assert broker.ports.grpc not in broker.ports.wanted
        assert broker.record().grpc == 0


async def test_clients_are_told_another_port(tmp_path: Path) -> None:
    told = ("broker.advertised_host=198.51.100.7", "rocketmq.grpc_advertised_port=30081")
    async with running_broker(tmp_path, *told) as broker:
        assert broker.record().client_grpc == 30081
        peer = await SdkPeer.connect(broker.ports.grpc_port)
        broker.topics.create_or_update(TopicConfig(name="plain", read_queues=1, write_queues=1))
        answer = await peer.call("QueryRoute", ROUTE)
        (address,) = answer.message_queues[0].broker.endpoints.addresses
        assert (address.host, address.port) == ("198.51.100.7", 30081)
        await peer.close()


async def test_a_topic_of_another_shard_takes_what_that_one_says(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDKs send nothing of another type, and ask their access point for it alone."""
    there = replace(broker.record(), shard=1, broker_name="shard-1", grpc=8081)
    placed = TopicPlacement(
        name="elsewhere",
        shards={1: ShardQueues(write=1, read=1)},
        attributes={"message.type": "DELAY"},
    )
    view = replace(broker.coordinator.view(), brokers=(there,), topics={"elsewhere": placed})
    monkeypatch.setattr(broker.coordinator, "view", lambda: view)
    request = make("QueryRouteRequest", topic=make("Resource", name="elsewhere"))
    (queue,) = (await peer.call("QueryRoute", request)).message_queues
    assert (queue.broker.name, list(queue.accept_message_types)) == ("shard-1", [MessageType.DELAY])


async def test_silent_connections_and_half_calls_are_ended(tmp_path: Path) -> None:
    settings = ("rocketmq.idle_seconds=1", "limits.input_stall_seconds=1")
    async with running_broker(tmp_path, *settings) as broker:
        idle = await SdkPeer.connect(broker.ports.grpc_port)
        await idle.ended()
        assert idle.goaway is not None
        half = await SdkPeer.connect(broker.ports.grpc_port)
        number, head = half.frames.begin("SendMessage")
        half.writer.write(head)
        while number not in half.resets:
            await half.step()
        begun = await SdkPeer.connect(broker.ports.grpc_port)
        number, head = begun.frames.begin("SendMessage")
        begun.writer.write(head + frames.frame(frames.Http2Frame.DATA, 0, number, b"\0\0\0\0\x09x"))
        await begun.ended()
        for peer in (idle, half, begun):
            await peer.close()


async def test_a_flood_ends_its_own_connection_alone(broker: Broker, peer: SdkPeer) -> None:
    bad = await SdkPeer.connect(broker.ports.grpc_port)
    bad.writer.write(frames.settings({}) * 3000)
    await bad.ended()
    assert (await peer.call("QueryRoute", ROUTE)).status.code == SdkCode.OK
    await bad.close()


async def test_many_slow_streams_take_nothing_from_others(broker: Broker, peer: SdkPeer) -> None:
    slow = await SdkPeer.connect(broker.ports.grpc_port)
    for _ in range(2000):
        slow.writer.write(slow.frames.begin("SendMessage")[1])
    assert (await peer.call("QueryRoute", ROUTE)).status.code == SdkCode.OK
    await slow.ended()  # above 1024 each is refused, and too many of those end the connection
    await slow.close()


async def test_what_headers_say_counts_as_input_until_the_request_has_come(
    broker: Broker, peer: SdkPeer
) -> None:
    """A table shortens them: a few bytes on the wire may be kilobytes here."""
    slow = await SdkPeer.connect(broker.ports.grpc_port)
    long = {**HEADERS, "x-mq-client-id": "c" * 3000, "x-unknown": "u" * 3000}
    numbers = []
    for _ in range(200):
        number, head = slow.frames.begin("QueryRoute", long)
        numbers.append(number)
        slow.writer.write(head)
    budget = broker.ports.input_budget
    await eventually(lambda: budget.held >= 200 * 3000)
    assert budget.held <= 200 * (3000 + 4096), "what nobody asks for is not kept"
    slow.writer.write(b"".join(slow.frames.data(number, encoded(ROUTE)) for number in numbers))
    await eventually(lambda: budget.held == 0)
    assert (await peer.call("QueryRoute", ROUTE)).status.code == SdkCode.OK
    await slow.close()


def give_rights(broker: Broker) -> None:
    """Let ann use the topic `plain` in the group `readers`."""
    both = frozenset({Operation.PUBLISH, Operation.SUBSCRIBE})
    rules = [
        AccessRule(Resource(AccessKind.TOPIC, "plain"), both),
        AccessRule(Resource(AccessKind.GROUP, "readers"), frozenset({Operation.SUBSCRIBE})),
    ]
    ann = User(name="ann", secret="password-of-ann")
    broker.core.access.put_account(ann, rules, Actor("test", "127.0.0.1"))


async def test_calls_are_of_their_signers_who_may_what_their_rules_say(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 40)
    settings = ("acl.enabled=true", f"admin.token_file={token}")
    async with running_broker(tmp_path, *settings) as broker:
        for name in ("plain", "other"):
            broker.topics.create_or_update(TopicConfig(name=name, read_queues=1, write_queues=1))
        give_rights(broker)
        peer = await SdkPeer.connect(broker.ports.grpc_port)
        ann, wrong = (signed_headers("ann", f"password-of-{name}") for name in ("ann", "eve"))

        async def code(method: str, request: Any, headers: dict[str, str]) -> int:
            answer = await peer.call(method, request, headers)
            return int(answer.status.code)

        def send(topic: str) -> Any:
            made = make("Message", topic=make("Resource", name=topic), body=b"x")
            made.system_properties.message_id = "01"
            return make("SendMessageRequest", messages=[made])

        assert await code("SendMessage", send("plain"), ann) == SdkCode.OK
        for headers in (wrong, HEADERS, signed_headers("nobody", "password-of-ann")):
            assert await code("SendMessage", send("plain"), headers) == SdkCode.UNAUTHORIZED
            assert await code("QueryRoute", ROUTE, headers) == SdkCode.UNAUTHORIZED
        assert await code("SendMessage", send("other"), ann) == SdkCode.UNAUTHORIZED
        assert await code("QueryRoute", ROUTE, ann) == SdkCode.OK
        undated = {name: value for name, value in ann.items() if name != "x-mq-date-time"}
        assert await code("QueryRoute", ROUTE, undated) == SdkCode.UNAUTHORIZED
        number, head = peer.frames.begin("Telemetry", ann)
        command = make("TelemetryCommand")
        command.settings.publishing.topics.append(make("Resource", name="other"))
        data = peer.frames.data(number, command.SerializeToString(), end=False)
        peer.writer.write(head + data)
        (answer,) = await peer.answers(number, "TelemetryCommand")
        assert answer.status.code == SdkCode.UNAUTHORIZED
        assert not answer.HasField("settings")
        await peer.close()


async def test_calls_that_nobody_signed_are_refused_before_their_requests(tmp_path: Path) -> None:
    """So that nothing is kept of these; what comes of them all the same harms nobody."""
    token = tmp_path / "token"
    token.write_text("t" * 40)
    async with running_broker(tmp_path, "acl.enabled=true", f"admin.token_file={token}") as broker:
        give_rights(broker)
        peer = await SdkPeer.connect(broker.ports.grpc_port)
        for headers in (HEADERS, signed_headers("ann", "password-of-eve")):
            for method in ("SendMessage", "ReceiveMessage"):
                number, head = peer.frames.begin(method, headers)
                peer.writer.write(head)
                refused = (await peer.answers(number, f"{method}Response"))[0]
                assert refused.status.code == SdkCode.UNAUTHORIZED
                peer.writer.write(peer.frames.data(number, b"late"))
        await refused_with_windows_shut(broker, peer)
        answer = await peer.call("QueryRoute", ROUTE, signed_headers("ann", "password-of-ann"))
        assert answer.status.code == SdkCode.TOPIC_NOT_FOUND
        recall = make("RecallMessageRequest", topic=make("Resource", name="other"))
        answer = await peer.call("RecallMessage", recall, signed_headers("ann", "password-of-ann"))
        assert answer.status.code == SdkCode.UNAUTHORIZED, "she has signed it, and may not"
        await peer.close()


async def refused_with_windows_shut(broker: Broker, peer: SdkPeer) -> None:
    """The input that calls were counted for is given back where their answers wait for windows."""
    budget = broker.ports.input_budget
    peer.writer.write(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 0}))
    numbers = []
    for _ in range(20):
        number, head = peer.frames.begin("SendMessage")
        numbers.append(number)
        peer.writer.write(head)
    await eventually(lambda: budget.held >= 20 * 2048)
    peer.writer.write(b"".join(frames.window_update(number, 1 << 16) for number in numbers))
    for number in numbers:
        assert (await peer.answers(number, "SendMessageResponse"))[0].status.code
    await eventually(lambda: budget.held == 0)
    peer.writer.write(frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: 1 << 16}))


@pytest.mark.parametrize("size", [1, 7])
def test_a_client_reads_its_own_frames_in_pieces(size: int) -> None:
    made, read = SdkFrames(), SdkFrames()
    data = made.greeting()[len(frames.PREFACE) :]
    found = [one for at in range(0, len(data), size) for one in read.read(data[at : at + size])]
    assert found == [(4, 0, 0, b"")]
