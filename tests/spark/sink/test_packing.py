"""Rows to requests in one compiled pass: what it does is what is done with care, or nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_client.checks import BODY_BYTES_MAX
from imago_client.core.sending.packed import pack
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_spark import outbox
from imago_spark.outbox import Outbox
from imago_spark.packing import _packing_py
from imago_spark.packing.waiting import WaitingRows
from imago_spark.sink_options import QueueBy
from imago_testing.frames.twins import load
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_spark.outbox import Request

COMPILED = load("imago_spark.packing._packing_c").RowPacker
QUEUES = tuple(MessageQueue("T", shard, number) for shard in "ab" for number in range(2))
TEXT = pa.string()
SCHEMA = pa.schema(
    [
        ("topic", TEXT),
        ("key", TEXT),
        ("tags", TEXT),
        ("value", pa.binary()),
        ("flag", pa.int32()),
        ("shard", TEXT),
        ("queue", pa.int32()),
        ("delayLevel", pa.int32()),
        ("deliverAt", pa.timestamp("us", tz="UTC")),
        ("properties", pa.map_(TEXT, TEXT)),
    ]
)
names = st.sampled_from(["own", "o2", "TAGS", "__x", "POP_CK", "ü", "", "a b", "\x01", "n" * 1030])
rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "T", "T", "U", "%RETRY%g", "a b", None]),
        "key": st.sampled_from(
            [None, "", "k1", "Zz~!", "two words", "k\t", "ü", "k" * 1025, "\x01"]
        ),
        "tags": st.sampled_from([None, None, "", "paid", "a|b", "ü", "two words", "*", "t" * 128]),
        "value": st.sampled_from([b"", b"x", b"\xff\x00", bytes(700), bytes(3000), None]),
        "flag": st.sampled_from([None, 0, 7, -1, -(1 << 31), (1 << 31) - 1]),
        "shard": st.sampled_from(["a", "b", "c", "", None, "ü"]),
        "queue": st.sampled_from([0, 1, 2, -1, None]),
        "delayLevel": st.sampled_from([None, None, None, 0, 3, 19]),
        "deliverAt": st.sampled_from([None, None, None, None, 1_700_000_000_000_000]),
        "properties": st.none()
        | st.lists(
            st.tuples(names, st.sampled_from(["", "v", "two words", "ü", "\x02", None])), max_size=3
        ),
    }
)
plain = st.fixed_dictionaries(
    {
        "topic": st.just("T"),
        "key": st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=9),
        "tags": st.sampled_from([None, "paid", "a-b_C9"]),
        "value": st.binary(max_size=40) | st.just(bytes(900)),
        "flag": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "shard": st.sampled_from("ab"),
        "queue": st.sampled_from([0, 1]),
        "delayLevel": st.none(),
        "deliverAt": st.none(),
        "properties": st.none()
        | st.dictionaries(st.sampled_from(["own", "o2", "TAGS"]), st.sampled_from(["", "v w"])).map(
            lambda found: list(found.items())
        ),
    }
)


def told(
    packer: Any, batches: Sequence[pa.RecordBatch], **more: Any
) -> tuple[list[Request], str, int, int]:
    """Return the requests of rows up to the first that is refused, why, and what was counted."""
    options: dict[str, Any] = {"topic": "T", "queue_by": QueueBy.KEY, "send_bytes": 4000}
    box = Outbox(
        lambda topic: QUEUES if topic == "T" else QUEUES[:1], partition=1, rows_max=7,
        **(options | more),
    )  # fmt: skip
    found: list[Request] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "RowPacker", packer)
        try:
            for batch in batches:
                found.extend(box.add(batch))
        except Exception as error:  # whichever it is, the other one has to say the same
            return found, f"{type(error).__name__}: {error}", box.rows, box.bytes
        found.extend(box.rest())
    return found, "", box.rows, box.bytes


def batches_of(
    given: Sequence[dict[str, Any]], cuts: Sequence[int], schema: pa.Schema = SCHEMA
) -> list[pa.RecordBatch]:
    """Return rows in slices of one batch, cut at these places."""
    whole = pa.RecordBatch.from_pylist(list(given), schema=schema)
    borders = [0, *sorted(min(cut, len(given)) for cut in cuts), len(given)]
    return [whole.slice(a, b - a) for a, b in itertools.pairwise(borders)]


@settings(max_examples=examples(400))
@given(
    st.lists(rows, max_size=6) | st.lists(plain, max_size=40) | st.lists(plain | rows, max_size=30),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from(["T", None]),
    st.sampled_from(list(QueueBy)),
    st.booleans(),
    st.sets(st.sampled_from([name for name in SCHEMA.names if name != "value"])),
)
def test_the_compiled_pass_does_what_care_does(
    given: list[dict[str, Any]],
    cuts: list[int],
    topic: str | None,
    queue_by: QueueBy,
    waits_alone: bool,
    left_out: set[str],
) -> None:
    schema = pa.schema([field for field in SCHEMA if field.name not in left_out])
    batches = batches_of(given, cuts, schema)
    more = {"topic": topic, "queue_by": queue_by, "waits_alone": waits_alone}
    with_care = told(_packing_py.RowPacker, batches, **more)
    assert told(COMPILED, batches, **more) == with_care


def packed_by_the_pass(given: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA) -> int:
    """Return how many rows the compiled pass takes, from the first on."""
    (batch,) = batches_of(given, [], schema)
    columns = dict(zip(schema.names, batch.columns, strict=True))
    slots = [WaitingRows(queue) for queue in QUEUES]
    places = {(queue.shard, queue.queue_id): at for at, queue in enumerate(QUEUES)}
    packer = COMPILED(columns, batch.num_rows)
    at, why, _, _ = packer.pack(0, None, slots, places, 0, 0, 0, 1 << 20, 1000)
    assert why == (_packing_py.DONE if at == len(given) else _packing_py.CARE)
    assert sum(slot.count for slot in slots) == at
    return int(at)


USUAL = {"key": "k", "value": b"x", "tags": "t", "flag": 1, "properties": [("own", "v")]}


def test_usual_rows_need_no_care_and_odd_ones_do() -> None:
    assert packed_by_the_pass([USUAL] * 5) == 5
    for odd in (
        {"key": "two words"},
        {"key": "k" * 1025},
        {"tags": "t" * 128},
        {"value": None},
        {"value": bytes(BODY_BYTES_MAX + 1)},
        {"delayLevel": 1},
        {"deliverAt": 1},
        {"properties": [("own", "v" * 1025)]},
        {"properties": [("own", "v"), ("own", "w")]},
        {"properties": [(f"n{at}", "v") for at in range(17)]},
        {"properties": [(f"n{at}", "v" * 1024) for at in range(16)]},
    ):
        assert packed_by_the_pass([USUAL, USUAL | odd, USUAL]) == 1, odd


def test_more_names_of_properties_than_are_remembered() -> None:
    rows = [USUAL | {"properties": [(f"n{at}", "v")]} for at in range(3000)]
    (batch,) = batches_of(rows[:2500], [])
    assert told(COMPILED, [batch]) == told(_packing_py.RowPacker, [batch])


def test_bodies_may_be_text_and_other_types_are_left_to_care() -> None:
    message = pack([Message("T", "ü".encode())])
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        batch = pa.RecordBatch.from_arrays([pa.array(["ü".encode()]).cast(kind)], ["value"])
        requests, _, _, _ = told(COMPILED, [batch])
        assert [packed for _, packed in requests] == [message], kind


class Lying:
    """An array of fewer bytes than it says; pyarrow makes none, but reads any from a socket."""

    type, offset = pa.binary(), 0

    def __init__(self, buffers: list[pa.Buffer | None], nulls: int) -> None:
        self.null_count, self._buffers = nulls, buffers

    def __len__(self) -> int:
        return 2

    def buffers(self) -> list[pa.Buffer | None]:
        return self._buffers


RIGHT = pa.array([0, 1, 2], pa.int32()).buffers()[1]
WRONG = pa.array([0, 99, 2], pa.int32()).buffers()[1]
BYTES = pa.py_buffer(b"xy")


@pytest.mark.parametrize(
    ("buffers", "nulls"),
    [
        ([None, WRONG, BYTES], 0),
        ([None, RIGHT, None], 0),
        ([None, RIGHT.slice(0, 8), BYTES], 0),
        ([None, None, BYTES], 0),
        ([pa.py_buffer(b""), RIGHT, BYTES], 1),
    ],
)
def test_columns_that_lie_about_their_bytes_are_refused(
    buffers: list[pa.Buffer | None], nulls: int
) -> None:
    def packed() -> None:
        packer = COMPILED({"value": Lying(buffers, nulls)}, 2)
        packer.pack(0, None, [WaitingRows(QUEUES[0])], {}, 0, 0, 0, 1 << 20, 1000)

    with pytest.raises(ValueError, match="a column"):
        packed()
    with pytest.raises(ValueError, match="different sizes"):
        COMPILED({"value": pa.array([b"x"]), "key": pa.array(["a", "b"])}, 1)
