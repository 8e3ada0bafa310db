"""POP receipts and acknowledgements, recall handles, and trace records."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.remoting import load_known
from imago_wire.errors import ProtocolError
from imago_wire.remoting.bodies.fields import BodyError
from imago_wire.remoting.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
    MessageQueueAssignment,
    QueryAssignmentResponseBody,
    ack_bits,
)
from imago_wire.remoting.frame import FrameDecoder
from imago_wire.remoting.headers.pop import AckMessageRequestHeader, PopMessageResponseHeader
from imago_wire.remoting.texts.handles import (
    PopReceipt,
    RecallHandle,
    parse_pop_receipt,
    parse_recall_handle,
)
from imago_wire.remoting.texts.trace import FIELDS, TraceRecord, decode_trace, encode_trace

KNOWN = load_known(Path(__file__).parent / "golden" / "known.hex")
UNIQ_KEY = "7F000001000118B4AAC212CC9AB20000"
RECEIPT = "5 1700000000000 60000 3 0 broker-a 2 6"


def test_receipt_of_a_known_acknowledgement() -> None:
    decoder = FrameDecoder()
    decoder.feed(KNOWN["ack-request"])
    command = decoder.next_frame()
    assert command is not None
    header = AckMessageRequestHeader.from_ext(command.ext)
    assert header.extra_info == RECEIPT
    receipt = parse_pop_receipt(header.extra_info)
    assert receipt == PopReceipt(5, 1700000000000, 60000, 3, "0", "broker-a", 2, 6)
    assert str(receipt) == RECEIPT


def test_pop_response_header() -> None:
    header = PopMessageResponseHeader(
        pop_time=1700000000000, invisible_time=60000, revive_qid=3, rest_num=0,
        start_offset_info="0 2 5", msg_offset_info="0 2 5,6",
    )  # fmt: skip
    assert header.to_ext() == {
        "invisibleTime": "60000", "msgOffsetInfo": "0 2 5,6", "popTime": "1700000000000",
        "restNum": "0", "reviveQid": "3", "startOffsetInfo": "0 2 5",
    }  # fmt: skip


NO_RECEIPTS = ["", "5", RECEIPT + " 7", RECEIPT.replace("60000", "x"), "٣" + RECEIPT[1:]]


@pytest.mark.parametrize("text", NO_RECEIPTS)
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_pop_receipt(text)


ACKS = (
    b'{"acks":[{"b":"Aw==","c":"CG","it":60000,"pt":1700000000000,"q":2,"r":"0","rq":3,"so":5,'
    b'"t":"TopicTest"}],"brokerName":"broker-a"}'
)


def test_acknowledgement_of_many_is_read_and_written() -> None:
    body = BatchAckMessageRequestBody.decode(ACKS)
    assert body.acks[0].offsets() == [5, 6]
    assert body.encode() == ACKS


@given(st.integers(0, 1 << 40), st.sets(st.integers(0, 300)))
def test_acknowledged_offsets_survive_their_bits(start: int, places: set[int]) -> None:
    offsets = sorted(start + place for place in places)
    ack = BatchAck(
        bits=ack_bits(start, offsets), consumer_group="g", invisible_time=1, pop_time=1,
        queue_id=0, revive_queue_id=0, start_offset=start, topic="t",
    )  # fmt: skip
    assert ack.offsets() == offsets


@pytest.mark.parametrize(
    ("bits", "reason"),
    [("A", "no Base64"), ("é", "no Base64"), ("AAAA", "24 bits, the limit is 16")],
)
def test_wrong_bits_are_refused(bits: str, reason: str) -> None:
    ack = BatchAckMessageRequestBody.decode(ACKS.replace(b"Aw==", bits.encode())).acks[0]
    with pytest.raises(BodyError, match=reason):
        ack.offsets(count_max=16)


def test_assignment_without_an_opinion() -> None:
    assert QueryAssignmentResponseBody.decode(b"{}").message_queue_assignments is None
    text = (
        b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":-1,"topic":"t"},'
        b'"mode":"POP"}]}'
    )
    body = QueryAssignmentResponseBody.decode(text)
    assert body.message_queue_assignments is not None
    (assignment,) = body.message_queue_assignments
    assert isinstance(assignment, MessageQueueAssignment)
    assert (assignment.message_queue.queue_id, assignment.mode) == (-1, "POP")
    assert body.encode() == text


HANDLE = (
    "djEgVG9waWNUZXN0IGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgN0YwMDAwMDEwMDAxMThCNEFBQzIxMkNDOUFCMjAwMDA="
)


def test_recall_handle_is_read_and_written() -> None:
    handle = RecallHandle("TopicTest", "broker-a", 1700000000000, UNIQ_KEY)
    assert parse_recall_handle(HANDLE) == handle
    assert str(handle) == HANDLE


NO_HANDLES = ["", "!", "djE=", "djIgYSBiIDEgYw==", "djEgYSBiIHggYw==", "gA==", "é"]


@pytest.mark.parametrize("text", NO_HANDLES)
def test_what_is_no_recall_handle_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_recall_handle(text)


def test_trace_of_a_send_is_read_and_written() -> None:
    data = KNOWN["trace-publish"]
    (record,) = decode_trace(data)
    assert record.kind == "Pub"
    assert record.fields["topic"] == "TopicTest"
    assert record.fields["msgId"] == UNIQ_KEY
    assert record.fields["isSuccess"] == "true"
    assert encode_trace([record]) == data


@given(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4))
def test_trace_records_survive_their_body(kinds: list[str]) -> None:
    records = [TraceRecord(kind, {name: f"<{name}>" for name in FIELDS[kind]}) for kind in kinds]
    assert decode_trace(encode_trace(records)) == records


def test_trace_of_an_older_client_has_fewer_fields() -> None:
    (record,) = decode_trace(b"Pub\x011\x01r\x02")
    assert record == TraceRecord("Pub", {"timeStamp": "1", "regionId": "r"})


def test_trace_record_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ProtocolError, match="kind 'Gossip'"):
        decode_trace(b"Gossip\x01x\x02")
