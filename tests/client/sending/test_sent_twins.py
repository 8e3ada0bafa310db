"""What is done for each message that is sent: of both twins the same, or it is left to care."""

from __future__ import annotations

from array import array
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imago_client import ProducerConfig, SendResult, SendStatus, UsageError, messages
from imago_client.core.sending import outgoing
from imago_client.core.sending.outgoing import Outgoing, prepare_with_care, share
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_testing.frames.twins import load
from imago_testing.searching import examples
from imago_wire.errors import LimitExceededError
from imago_wire.record_format.properties import PROPERTIES_BYTES_MAX
from imago_wire.record_format.sequences import NUMBER_MAX, Sequence, wire_properties
from imago_wire.remoting import _sent_py
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.messages import decode_batch

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED = load("imago_wire.remoting._sent_c")
CONFIG = ProducerConfig()
IDEMPOTENT = ProducerConfig(idempotent=True)
NUMBERS = wire_properties(Sequence("0" * 16, NUMBER_MAX, NUMBER_MAX))
KEY = "7F000001000118B4AAC2000003E80000"

odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, 1, True, 1.5, b"x", [], ("a",), {}, {"a": "b"}, "", "*", "a|b", " a"]
)
texts = st.sampled_from(["orders", "%RETRY%g", "a-b_C9", "ü", "\ud800", "a b", "x" * 128, "\x01"])
values = st.fixed_dictionaries(
    {"topic": texts | odd, "body": st.binary(max_size=9) | st.just(bytearray(b"ba")) | odd},
    optional={
        "tags": st.sampled_from(["paid", "bezahlt-ü", "two words", "a||b"]) | odd,
        "keys": st.sampled_from([("k1", "k2"), ("",), ("a b",), ("ü",), ("k",) * 40]) | odd,
        "ordering_key": texts | odd,
        "delay_level": st.sampled_from([0, 3, 19, False]) | odd,
        "deliver_at_ms": st.sampled_from([0, 5, -1]) | odd,
        "delay_ms": st.sampled_from([0, 5, -1]) | odd,
        "wait_stored": st.booleans(),
        "flag": st.sampled_from([0, 7, -1, 1 << 31]) | odd,
        "properties": st.dictionaries(
            st.sampled_from(["own", "ü", "", "a b", "UNIQ_KEY", "INNER_MULTI_DISPATCH", "\x01"]),
            st.sampled_from(["", "v", "two words", "ü", "\x02", "\ud800", "x" * 2000]),
        )
        | odd,
    },
)


def made(arguments: dict[str, Any]) -> Message | str:
    try:
        return Message(**arguments)
    except UsageError as error:
        return str(error)


def ready(message: Message, config: ProducerConfig = CONFIG) -> Outgoing | str:
    try:
        return prepare_with_care(config, message, KEY, 17)
    except UsageError as error:
        return str(error)


def plain_of(message: Message, config: ProducerConfig = CONFIG, whole: int = 1 << 20) -> Any:
    size_max = outgoing.properties_bytes_max(config)
    return COMPILED.prepare_plain(Outgoing, outgoing._PLAIN, message, KEY, 17, whole, size_max)


def by(patch: pytest.MonkeyPatch, twin: Any, act: Callable[[], Any]) -> Any:
    with patch.context() as context:
        context.setattr(messages, "fill_message", twin.fill_message)
        return act()


@given(values)
@settings(max_examples=examples(2000))
def test_messages_are_sound_or_refused_whichever_twin_sees_them(arguments: dict[str, Any]) -> None:
    patch = pytest.MonkeyPatch()
    with_care, compiled = (
        by(patch, twin, lambda: made(arguments)) for twin in (_sent_py, COMPILED)
    )
    assert repr(compiled) == repr(with_care)
    if isinstance(compiled, Message):
        for one in fields(Message):
            value = getattr(compiled, one.name)
            assert value is getattr(with_care, one.name) or one.name == "properties"
        plain = plain_of(compiled)
        assert plain is None or plain == ready(compiled)


def test_plain_messages_are_seen_to_be_so() -> None:
    for message in (
        Message("orders", b"x"),
        Message("orders", b"x", tags="paid", keys=("k1", "k2"), ordering_key="o"),
        Message("orders", b"x", properties={"own": "two words"}, flag=7),
    ):
        plain = plain_of(message)
        assert plain is not None
        assert plain == ready(message)
    assert plain_of(message, whole=0) is None


def long_of(size: int) -> Message:
    """Return a message whose texts are short, and so many bytes together."""
    own = {f"n{at}": "v" * 1020 for at in range(16)}
    keys = ("k" * 1020,) * 15
    left = size - len(cast("Outgoing", ready(Message("orders", b"", properties=own))).properties)
    own_key = left - len("KEYS\x01\x02") - 15 * 1021
    assert own_key <= 1024, "each of its texts is short"
    return Message("orders", b"x", keys=(*keys, "k" * own_key), properties=own)


@given(st.integers(-200, 10), st.sampled_from([CONFIG, IDEMPOTENT]))
@settings(max_examples=examples(200))
@example(0, CONFIG)
@example(1, CONFIG)
@example(-len(NUMBERS), IDEMPOTENT)
@example(1 - len(NUMBERS), IDEMPOTENT)
def test_short_texts_that_are_too_long_together_are_refused_by_both_twins(
    beyond: int, config: ProducerConfig
) -> None:
    message = long_of(PROPERTIES_BYTES_MAX + beyond)
    with_care, plain = ready(message, config), plain_of(message, config)
    numbers = NUMBERS if config.idempotent else ""
    if beyond + len(numbers) <= 0:
        assert isinstance(with_care, Outgoing)
        assert plain == with_care
        assert len(with_care.properties) == PROPERTIES_BYTES_MAX + beyond
        numbered = with_care._replace(properties=with_care.properties + numbers)
        for twin in (_sent_py, COMPILED):
            assert twin.encode_joined([numbered])
    else:
        assert "the limit is" in str(with_care)
        assert plain is None


@pytest.mark.parametrize(("name", "why"), [("TRAN_MSG", "reserved"), ("", "empty"), (5, "dict")])
def test_properties_that_changed_after_the_message_was_made_are_refused(
    name: Any, why: str
) -> None:
    handed_in = {"region": "eu"}
    changed, own = Message("orders", b"", properties=handed_in), Message("orders", b"")
    handed_in[name] = "true"
    cast("dict[str, str]", own.properties)[name] = "true"
    for message in (changed, own):
        assert plain_of(message) is None
        assert why in str(ready(message))


def test_keys_and_bodies_that_changed_after_the_message_was_made_are_checked_again() -> None:
    body, keys = bytearray(b"x"), ["a"]
    message = Message("orders", cast("bytes", body), keys=cast("tuple[str, ...]", keys))
    body += b"y"
    sent = cast("Outgoing", ready(message))
    body += b"z"
    assert sent.body == b"xy"
    keys.append("two words")
    assert "nor hold a space" in str(ready(message))
    keys[1] = cast("str", 5)
    assert "a key is a string" in str(ready(message))
    keys.pop()
    body += bytes(4 << 20)
    assert "the limit is" in str(ready(message))


def test_bodies_of_larger_items_are_sent_as_their_bytes() -> None:
    items = memoryview(array("I", [1, 2, 3]))
    message = Message("orders", cast("bytes", items))
    sent = cast("Outgoing", ready(message))
    assert sent.body == items.tobytes()
    for twin in (_sent_py, COMPILED):
        assert decode_batch(twin.encode_joined([sent, sent]))[1].body == items.tobytes()
    items.release()
    assert "released" in str(ready(message))
    assert "released" in str(made({"topic": "orders", "body": items}))


def test_messages_have_properties_of_their_own() -> None:
    first, second = Message("orders", b""), Message("orders", b"")
    assert first.properties == second.properties == {}
    assert first.properties is not second.properties


def one_of(body: bytes, properties: str, flag: int) -> Outgoing:
    code = RequestCode.SEND_MESSAGE_V2
    return Outgoing(code, "orders", KEY, body, properties, born_ms=1, flag=flag)


@given(
    st.lists(
        st.builds(
            one_of,
            st.binary(max_size=40) | st.binary(max_size=9).map(bytearray),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
            st.integers(-(1 << 31), (1 << 31) - 1),
        ),
        max_size=5,
    )
)
@settings(max_examples=examples(300))
def test_bodies_of_batches_are_the_same(outgoings: list[Outgoing]) -> None:
    assert COMPILED.encode_joined(outgoings) == _sent_py.encode_joined(outgoings)


@pytest.mark.parametrize("twin", [_sent_py, COMPILED])
def test_properties_beyond_the_limit_are_refused(twin: Any) -> None:
    with pytest.raises(LimitExceededError, match="properties"):
        twin.encode_joined([one_of(b"", "ü" * 16384, 0)])
    with pytest.raises(UnicodeEncodeError):
        twin.encode_joined([one_of(b"", "\ud800", 0)])


def test_results_are_shared_the_same_way() -> None:
    outgoings = [one_of(b"", "", 0)._replace(message_id=f"id {at}") for at in range(3)]
    queue = MessageQueue("orders", "a", 1)
    for stored in ("a,b,c", "first"):
        result = SendResult(SendStatus.OK, queue, 40, "id 0", stored, "handle", "region")
        found = share(outgoings, result)
        ids = stored.split(",") if "," in stored else [stored] * 3
        expected = [
            SendResult(SendStatus.OK, queue, 40 + at, f"id {at}", ids[at], None, "region")
            for at in range(3)
        ]
        assert found == expected
        assert _sent_py.share_results(SendResult, outgoings, ids, result) == expected
