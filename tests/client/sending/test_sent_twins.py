"""What is done for each message that is sent: of both twins the same, or it is left to care."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_client import ProducerConfig, SendResult, SendStatus, UsageError, messages
from imago_client.core.sending import outgoing
from imago_client.core.sending.outgoing import Outgoing, prepare_with_care, share
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_testing.frames.twins import load
from imago_testing.searching import examples
from imago_wire.errors import LimitExceededError
from imago_wire.remoting import _sent_py
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED = load("imago_wire.remoting._sent_c")
CONFIG = ProducerConfig()
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


def ready(message: Message) -> Outgoing | str:
    try:
        return prepare_with_care(CONFIG, message, KEY, 17)
    except UsageError as error:
        return str(error)


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
        plain = COMPILED.prepare_plain(Outgoing, outgoing._PLAIN, compiled, KEY, 17, 1 << 20)
        assert plain is None or plain == ready(compiled)


def test_plain_messages_are_seen_to_be_so() -> None:
    for message in (
        Message("orders", b"x"),
        Message("orders", b"x", tags="paid", keys=("k1", "k2"), ordering_key="o"),
        Message("orders", b"x", properties={"own": "two words"}, flag=7),
    ):
        plain = COMPILED.prepare_plain(Outgoing, outgoing._PLAIN, message, KEY, 17, 1 << 20)
        assert plain is not None
        assert plain == ready(message)
    assert COMPILED.prepare_plain(Outgoing, outgoing._PLAIN, message, KEY, 17, 0) is None


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
