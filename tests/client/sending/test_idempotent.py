"""The idempotent producer: numbers, lanes, and what is left in the log when the network fails."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.core.puts.sequencing import Numbers, ProducerState, Verdict, judge
from imago_client.config import ClientConfig, ProducerConfig
from imago_client.core.effects import Operation, Pause, Request, Wait
from imago_client.core.sending.idempotent import send
from imago_client.core.sending.lanes import IDLE_S_MAX, ProducerLanes
from imago_client.core.sending.outgoing import prepare, prepare_batch
from imago_client.core.sending.selection import queue_for_key
from imago_client.core.sending.sending import Rotations
from imago_client.core.state import ClientState
from imago_client.errors import (
    BrokerError,
    ConnectionLostError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RequestTimeoutError,
    SendFailedError,
    UsageError,
)
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message, SendResult, SendStatus
from imago_testing.peers.client_scripts import ScriptedServers, in_turn, response, route_body
from imago_testing.searching import examples
from imago_wire.record_format.properties import decode
from imago_wire.record_format.sequences import Sequence, read_wire
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.send import SendMessageResponseHeader
from imago_wire.remoting.messages import decode_batch

if TYPE_CHECKING:
    from imago_wire.remoting.command import RemotingCommand

CONFIG = ProducerConfig(idempotent=True)
FIXED = ProducerConfig(idempotent=True, producer_id=0xAB, producer_epoch=3)
QUEUE = MessageQueue("orders", "a", 0)
LOST = ConnectionLostError("a:1", "gone")
GAP = ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE


def stored(offset: int = 5) -> RemotingCommand:
    return response(0, SendMessageResponseHeader(msg_id="AB", queue_id=0, queue_offset=offset))


def refused(code: int) -> RemotingCommand:
    return response(code, remark="said why")


class Producer:
    """One producer in a scripted world."""

    def __init__(self, config: ProducerConfig, *answers: Any) -> None:
        self.world = ScriptedServers(brokers=in_turn(answers))
        self.config = config
        self.rotations = Rotations(0)
        self.lanes = ProducerLanes(config, random.Random(3))

    def send(self, body: bytes = b"x", queue: MessageQueue | None = QUEUE) -> SendResult:
        outgoing = prepare(self.world.state, self.config, Message("orders", body))
        return self.world.run(
            send(self.world.state, self.config, self.rotations, self.lanes, outgoing, queue)
        )

    @property
    def sent(self) -> list[tuple[str, int, int]]:
        """Address, epoch and number of each try."""
        tries = []
        for request in self.world.asked(RequestCode.SEND_MESSAGE_V2):
            assert request.header is not None
            sequence = read_wire(request.header.to_ext()["i"].encode())
            assert sequence is not None
            tries.append((request.address, sequence.epoch, sequence.number))
        return tries


def test_numbers_count_per_queue() -> None:
    producer = Producer(CONFIG, *[stored()] * 6)
    queues = [producer.send(queue=None).queue for _ in range(4)]
    assert len(set(queues)) == 2 or len(queues) == 4
    assert [number for _, _, number in producer.sent] == [0, 0, 0, 0]
    producer.send()
    producer.send()
    assert [number for _, _, number in producer.sent][4:] in ([1, 2], [0, 1])


def test_every_try_has_the_same_number_and_queue() -> None:
    producer = Producer(
        CONFIG, LOST, refused(ResponseCode.SERVICE_NOT_AVAILABLE), stored(), stored()
    )
    assert producer.send().offset == 5
    assert producer.send().offset == 5
    assert producer.sent == [("a:1", 0, 0)] * 3 + [("a:1", 0, 1)]
    assert producer.world.pauses == [0.1, 0.2]


def test_tries_follow_the_shard_to_its_new_master() -> None:
    producer = Producer(CONFIG, stored(), LOST, stored())
    producer.send()
    original = producer.world.brokers

    def moved(request: Request) -> Any:
        answer = original(request)
        producer.world.shards = {"a": "a:2", "b": "b:1"}
        return answer

    producer.world.brokers = moved
    producer.send()
    assert producer.sent == [("a:1", 0, 0), ("a:1", 0, 1), ("a:2", 0, 1)]


def test_gives_up_at_the_time_limit_and_says_why() -> None:
    producer = Producer(CONFIG, *[LOST] * 200)
    with pytest.raises(SendFailedError, match="a:1: gone") as failed:
        producer.send()
    assert len(failed.value.causes) > 10
    assert 29 <= sum(producer.world.pauses) <= 31


def test_given_up_message_that_was_stored_leaves_no_gap() -> None:
    config = ProducerConfig(idempotent=True, delivery_timeout_s=0.05)
    producer = Producer(config, LOST, stored(6), stored(7))
    with pytest.raises(SendFailedError):
        producer.send()
    assert (producer.send().offset, producer.send().offset) == (6, 7)
    assert [sent[1:] for sent in producer.sent] == [(0, 0), (0, 1), (0, 2)]


def test_given_up_message_that_was_not_stored_is_followed_by_a_new_epoch() -> None:
    config = ProducerConfig(idempotent=True, delivery_timeout_s=0.05)
    producer = Producer(config, LOST, refused(GAP), stored(0), stored(1))
    with pytest.raises(SendFailedError):
        producer.send()
    assert (producer.send().offset, producer.send().offset) == (0, 1)
    assert [sent[1:] for sent in producer.sent] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_chosen_identity_is_kept_and_its_gaps_are_told() -> None:
    config = ProducerConfig(
        idempotent=True, producer_id=0xAB, producer_epoch=3, delivery_timeout_s=0.05
    )
    producer = Producer(config, LOST, refused(GAP))
    with pytest.raises(SendFailedError):
        producer.send()
    with pytest.raises(OutOfOrderSequenceError, match="said why"):
        producer.send()
    assert [sent[1:] for sent in producer.sent] == [(3, 0), (3, 1)]


def test_number_of_a_message_that_was_refused_for_good_is_taken_again() -> None:
    producer = Producer(FIXED, refused(ResponseCode.MESSAGE_ILLEGAL), refused(GAP), stored(0))
    with pytest.raises(BrokerError, match="code 13"):
        producer.send()
    assert producer.send().offset == 0
    assert [sent[1:] for sent in producer.sent] == [(3, 0), (3, 1), (3, 0)]


def test_fenced_producer_stops() -> None:
    producer = Producer(FIXED, refused(ResponseCode.IMAGO_PRODUCER_FENCED))
    with pytest.raises(ProducerFencedError, match="said why"):
        producer.send()


def test_forgotten_producer_goes_on_under_a_new_epoch() -> None:
    producer = Producer(CONFIG, stored(), refused(GAP), stored())
    producer.send()
    producer.send()
    assert [sent[1:] for sent in producer.sent] == [(0, 0), (0, 1), (1, 0)]


def test_long_silence_ends_in_a_new_id() -> None:
    producer = Producer(CONFIG, stored(), stored())
    producer.send()
    producer.world.now_s += IDLE_S_MAX + 1
    producer.send()
    assert [sent[1:] for sent in producer.sent] == [(0, 0), (0, 0)]
    ids = {
        read_wire(request.header.to_ext()["i"].encode())
        for request in producer.world.asked(RequestCode.SEND_MESSAGE_V2)
        if request.header is not None
    }
    assert len({one.producer for one in ids if one}) == 2


def test_late_replication_is_asked_for_again() -> None:
    config = ProducerConfig(idempotent=True, retry_when_not_stored_ok=True)
    late = refused(ResponseCode.FLUSH_SLAVE_TIMEOUT)
    late.ext = stored().ext
    producer = Producer(config, late, stored())
    assert producer.send().status is SendStatus.OK
    assert [sent[2] for sent in producer.sent] == [0, 0]
    producer = Producer(config, *[late] * 200)
    assert producer.send().status is SendStatus.FLUSH_SLAVE_TIMEOUT


def test_batch_numbers_its_messages() -> None:
    world = ScriptedServers(brokers=in_turn([stored(), stored()]))
    lanes = ProducerLanes(FIXED, random.Random(3))
    for _ in range(2):
        messages = [Message("orders", b"%d" % n, tags="t") for n in range(3)]
        outgoing = prepare_batch(world.state, FIXED, messages)
        world.run(send(world.state, FIXED, Rotations(0), lanes, outgoing, QUEUE))
    numbers = []
    for request in world.asked(RequestCode.SEND_BATCH_MESSAGE):
        for entry in decode_batch(request.body):
            assert decode(entry.properties)["TAGS"] == "t"
            numbers.append(read_wire(entry.properties))
    assert numbers == [Sequence("00000000000000ab", 3, n) for n in range(6)]


def test_delayed_messages_are_refused_before_they_are_sent() -> None:
    state = ScriptedServers().state
    with pytest.raises(UsageError, match="idempotent"):
        prepare(state, CONFIG, Message("orders", b"x", delay_level=3))
    with pytest.raises(UsageError, match="idempotent"):
        prepare(state, CONFIG, Message("%RETRY%g", b"x"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"producer_id": 1}, "only an idempotent"),
        ({"producer_epoch": 1}, "without a producer_id"),
        ({"idempotent": True, "producer_id": 1 << 64}, "64 bits"),
        ({"idempotent": True, "producer_id": 1, "producer_epoch": -1}, "producer_epoch"),
        ({"in_flight_per_queue": 0}, "in_flight_per_queue"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ProducerConfig(**settings)


# Many at once over a network that fails


@dataclass
class PlainBroker:
    """One queue, and what an idempotent broker does with it."""

    log: list[tuple[Sequence, bytes]] = field(default_factory=list)

    def take(self, sequence: Sequence, body: bytes) -> RemotingCommand:
        own = [known for known, _ in self.log if known.producer == sequence.producer]
        epoch = max((known.epoch for known in own), default=-1)
        following = sum(known.epoch == epoch for known in own)
        claimed = Numbers(sequence.producer, sequence.epoch, sequence.number, 1)
        verdict = judge(ProducerState(epoch, following), claimed)
        if verdict is Verdict.FENCED:
            return refused(ResponseCode.IMAGO_PRODUCER_FENCED)
        if verdict is Verdict.OUT_OF_ORDER:
            return refused(GAP)
        if verdict is Verdict.APPEND:
            self.log.append((sequence, body))
        at = [known for known, _ in self.log].index(sequence)
        return stored(at)


class Net:
    """Runs operations together; a seed decides who goes on and what the network does."""

    def __init__(self, seed: int, failures: float) -> None:
        self.rng = random.Random(seed)
        self.failures = failures
        self.broker = PlainBroker()
        self.now_s = 0.0
        self.state = ClientState(
            ClientConfig(bootstrap=("ns:1",)),
            host="127.0.0.1",
            process_id=lambda: 7,
            rng=random.Random(seed),
            clock_s=lambda: self.now_s,
            clock_ms=lambda: int(self.now_s * 1000),
        )
        self.results: dict[int, SendResult | Exception] = {}
        self._running: dict[int, Operation[SendResult]] = {}
        self._ready: deque[tuple[int, Any]] = deque()
        self._wire: deque[tuple[int, Request]] = deque()
        self._sleeping: list[tuple[float, int]] = []

    def start(self, number: int, operation: Operation[SendResult]) -> None:
        self._running[number] = operation
        self._ready.append((number, None))

    def run(self) -> None:
        while self._running:
            if self._ready and (not self._wire or self.rng.random() < 0.6):
                self._step(*self._ready.popleft())
            elif self._wire:
                self._deliver(*self._wire.popleft())
            else:
                self._sleeping.sort()
                self.now_s, number = self._sleeping.pop(0)
                self._ready.append((number, None))

    def _step(self, number: int, answer: Any) -> None:
        operation = self._running[number]
        try:
            if isinstance(answer, Exception):
                effect = operation.throw(answer)
            else:
                effect = operation.send(answer)
        except StopIteration as stop:
            self._end(number, stop.value)
        except (SendFailedError, OutOfOrderSequenceError) as error:
            self._end(number, error)
        else:
            self._perform(number, effect)

    def _end(self, number: int, result: SendResult | Exception) -> None:
        self.results[number] = result
        del self._running[number]

    def _perform(self, number: int, effect: Any) -> None:
        match effect:
            case Wait(gate):
                gate.on_open(lambda: self._ready.append((number, None)))
            case Pause(seconds):
                self._sleeping.append((self.now_s + seconds, number))
            case Request(code=RequestCode.GET_ROUTEINFO_BY_TOPIC):
                self._ready.append((number, response(body=route_body({"a": "a:1"}))))
            case Request():
                self._wire.append((number, effect))
            case _:
                raise AssertionError(effect)

    def _deliver(self, number: int, request: Request) -> None:
        assert request.header is not None
        sequence = read_wire(request.header.to_ext()["i"].encode())
        assert sequence is not None
        fate = self.rng.random()
        answer: Any = LOST
        if fate > self.failures / 3:
            answer = self.broker.take(sequence, request.body)
        if fate < self.failures * 2 / 3:
            answer = LOST
        elif fate < self.failures:
            self.now_s += 1.0
            answer = RequestTimeoutError("a:1", 3.0)
        self._ready.append((number, answer))


@pytest.mark.parametrize("failures", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("delivery_timeout_s", [1000.0, 2.0])
def test_whatever_the_network_does_messages_are_stored_once_and_in_order(
    failures: float, delivery_timeout_s: float
) -> None:
    config = ProducerConfig(idempotent=True, delivery_timeout_s=delivery_timeout_s)
    given_up = 0
    for seed in range(examples(150)):
        net = Net(seed, failures)
        lanes, rotations = ProducerLanes(config, random.Random(seed)), Rotations(0)
        for number in range(30):
            outgoing = prepare(net.state, config, Message("orders", b"%02d" % number))
            net.start(number, send(net.state, config, rotations, lanes, outgoing, QUEUE))
        net.run()
        bodies = [body for _, body in net.broker.log]
        assert bodies == sorted(set(bodies)), f"seed {seed}"
        for number, result in net.results.items():
            if isinstance(result, SendResult):
                assert net.broker.log[result.offset][1] == b"%02d" % number, f"seed {seed}"
            else:
                assert isinstance(result, SendFailedError), f"seed {seed}: {result}"
                given_up += 1
    assert (given_up > 0) == (failures > 0 and delivery_timeout_s < 1000)


def test_messages_of_one_key_are_in_line_before_their_shard_has_a_master() -> None:
    """Whichever of them finds the new master first: the first that was sent is the first stored."""
    producer = Producer(CONFIG)
    world, key = producer.world, "k"
    world.placed = {"a", "b"}
    placed = [MessageQueue("orders", shard, number) for shard in "ab" for number in range(2)]
    home = queue_for_key(key, placed)
    del world.shards[home.shard]
    world.brokers = lambda _: stored()
    operations = []
    for body in (b"first", b"second"):
        message = Message("orders", body, ordering_key=key)
        outgoing = prepare(world.state, CONFIG, message)
        operation = send(world.state, CONFIG, producer.rotations, producer.lanes, outgoing, None)
        effect = next(operation)
        while not isinstance(effect, Pause):  # until it finds no master
            effect = operation.send(world._perform(effect))  # type: ignore[arg-type]  # an answer
        operations.append((operation, effect))
    world.shards[home.shard] = f"{home.shard}:9"
    bodies: list[bytes] = []
    for operation, waiting in reversed(operations):  # the second looks first
        effect = waiting
        with contextlib.suppress(StopIteration):
            while True:
                effect = operation.send(world._perform(effect))  # type: ignore[arg-type]  # as above
        (request,) = world.asked(RequestCode.SEND_MESSAGE_V2)[len(bodies) :]
        bodies.append(request.body)
    assert bodies == [b"second", b"first"], "as they were let"
    assert [number for _, _, number in producer.sent] == [1, 0], "numbered as they were sent"
