"""Header classes: every one of them, from its fields to ext and back."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import classes_below, ints, longs, texts
from imago_wire.remoting import headers
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.fields import Header, HeaderFieldError, Int, Long, header, wire, wire_name
from imago_wire.remoting.headers.imago import TopicChange
from imago_wire.remoting.headers.table import REQUEST_HEADERS, RESPONSE_HEADERS

CLASSES = classes_below(headers, Header)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values for a field of this type."""
    if get_origin(hint) is Annotated:
        return longs if get_args(hint)[1] == 64 else ints
    inner = get_args(hint)
    if NoneType in inner:
        return st.none() | values_of(next(one for one in inner if one is not NoneType))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return {str: texts, bool: st.booleans()}[hint]


def header_values(kind: type[Header]) -> st.SearchStrategy[Header]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{spec.name: values_of(hints[spec.name]) for spec in fields(kind)})  # type: ignore[arg-type]  # all are dataclasses


@pytest.mark.parametrize("kind", CLASSES)
def test_header_survives_its_ext_form(kind: type[Header]) -> None:
    @settings(max_examples=8)
    @given(header_values(kind))
    def check(value: Header) -> None:
        ext = value.to_ext()
        assert all(type(text) is str for text in ext.values())
        assert kind.from_ext(ext) == value

    check()


@pytest.mark.parametrize("kind", CLASSES)
def test_header_of_any_text_is_a_value_or_names_its_field(kind: type[Header]) -> None:
    wrong: set[str] = set()
    names = [wire_name(spec) for spec in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses

    @settings(max_examples=8)
    @given(st.dictionaries(st.sampled_from(names), texts) if names else st.just({}))
    def check(ext: dict[str, str]) -> None:
        try:
            value = kind.from_ext(ext)
        except HeaderFieldError as error:
            wrong.add(error.name)
        else:
            assert kind.from_ext(value.to_ext()) == value

    check()
    assert wrong <= set(names)


def test_there_are_as_many_classes_as_the_protocol_has() -> None:
    # The protocol's 136 without those of controllers and containers; four are our own.
    assert len(CLASSES) == 136 - 17 + 4


def test_every_code_of_the_tables_is_a_request() -> None:
    assert set(REQUEST_HEADERS) <= set(RequestCode)
    assert set(RESPONSE_HEADERS) <= set(RequestCode)
    assert len(REQUEST_HEADERS) == 99
    assert len(RESPONSE_HEADERS) == 31


@header
class Sample(Header):
    topic_name: str
    queue_id: Int
    offset: Long = wire("theOffset", default=-1)
    is_force: bool = False
    kind: TopicChange | None = None


def test_names_and_texts_on_the_wire() -> None:
    alter = TopicChange.ALTER
    value = Sample(topic_name="t", queue_id=-3, offset=1 << 40, is_force=True, kind=alter)
    assert value.to_ext() == {
        "topicName": "t",
        "queueId": "-3",
        "theOffset": "1099511627776",
        "isForce": "true",
        "kind": "alter",
    }
    assert Sample(topic_name="t", queue_id=1).to_ext() == {
        "topicName": "t",
        "queueId": "1",
        "theOffset": "-1",
        "isForce": "false",
    }


@pytest.mark.parametrize(
    ("ext", "text"),
    [
        ({}, "the custom field <topicName> is null"),
        ({"topicName": "t"}, "the custom field <queueId> is null"),
        ({"topicName": "t", "queueId": ""}, "the custom field <queueId> is null"),
        (
            {"topicName": "t", "queueId": "2147483648"},
            "the custom field <queueId> is not a number of 32 bits: '2147483648'",
        ),
        (
            {"topicName": "t", "queueId": "1 "},
            "the custom field <queueId> is not a number of 32 bits: '1 '",
        ),
        (
            {"topicName": "t", "queueId": "1", "theOffset": "9223372036854775808"},
            "the custom field <theOffset> is not a number of 64 bits: '9223372036854775808'",
        ),
        (
            {"topicName": "t", "queueId": "1", "kind": "MIDDLE"},
            "the custom field <kind> is none of create, ensure, alter: 'MIDDLE'",
        ),
    ],
)
def test_missing_or_wrong_field_is_named(ext: dict[str, str], text: str) -> None:
    with pytest.raises(HeaderFieldError) as caught:
        Sample.from_ext(ext)
    assert str(caught.value) == text


def test_foreign_fields_are_ignored_and_empty_optional_ones_absent() -> None:
    ext = {"topicName": "", "queueId": "+7", "theOffset": "", "isForce": "TRUE", "AccessKey": "k"}
    assert Sample.from_ext(ext) == Sample(topic_name="", queue_id=7, is_force=True)


def test_header_values_do_not_change() -> None:
    value = Sample(topic_name="t", queue_id=1)
    with pytest.raises(AttributeError):
        value.queue_id = 2  # type: ignore[misc]  # that is what must fail


def test_reused_response_numbers_have_both_names() -> None:
    assert ResponseCode["DELETE_ACL_CONFIG_FAILED"] is ResponseCode.POLLING_TIMEOUT
    assert ResponseCode(209).name == "POLLING_FULL"
