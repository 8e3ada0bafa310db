"""What of a message its copy keeps, and which are not copied."""

from __future__ import annotations

import pytest

from imago_client.message_queue import MessageQueue
from imago_client.received import ReceivedMessage, cut
from imago_mirror.core.assignment import QueuePlace, assign, queues_wanted
from imago_mirror.core.copying import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    Copies,
    Numbering,
    Returned,
    split_properties,
    steps,
    tails,
)
from imago_mirror.core.notes import (
    NOTE_BYTES_MAX,
    CopiedQueue,
    MirrorNote,
    Order,
    decode,
    decode_order,
    encode,
    encode_order,
)
from imago_mirror.core.offsets import OffsetMap
from imago_mirror.core.origins import HOPS_MAX, Origin, SourceQueue, producer_of, read_hops
from imago_mirror.core.positions import CopyPosition
from imago_mirror.note_keeper import take
from imago_mirror.settings import MirrorSettingsError, read_settings
from imago_wire.record_format import properties as names
from imago_wire.record_format.sequences import Sequence, read_wire, stored_property, user_tag
from imago_wire.records.record import StoredMessage
from imago_wire.remoting.messages import (
    decode_births,
    encode_births,
    encode_message,
)

QUEUE = SourceQueue("A", "orders", 7, "shard-0", 3)
THERE = SourceQueue("B", "orders", 9, "shard-1", 2)
READ = MessageQueue("orders", "shard-0", 3)


def stored(
    offset: int, body: bytes = b"body", properties: bytes = b"", born_ms: int = 5, sys_flag: int = 0
) -> ReceivedMessage:
    """Return a message as a pull brings it; its properties end as a broker's do."""
    message = StoredMessage(
        size=0,
        topic="orders",
        queue_id=3,
        queue_offset=offset,
        physical_offset=9,
        flag=4,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=bytes(8),
        store_ms=77,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
        body=body,
        body_crc=0,
        properties=names.decode(properties),
    )
    (received,) = cut(READ, encode_message(message))
    return received


def copies_of(*messages: ReceivedMessage, copied: int = 0) -> list[Copies | Returned]:
    return steps(messages, Numbering(QUEUE, 11, 100, copied), "B")


def test_a_copy_keeps_what_a_sender_may_say_and_loses_what_its_broker_said() -> None:
    said = (
        b"TAGS\x01paid\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AB\x02region\x01eu\x02"
        b"CLUSTER\x01A\x02MSG_REGION\x01R\x02TRACE_ON\x01true\x02TRAN_MSG\x01true\x02"
        b"DELAY\x013\x02TIMER_DELIVER_MS\x019\x02TIMER_OUT_MS\x019\x02"
        b"__METAQ_POS\x010000000000000001\x02__METAQ_ID\x010000000000000002\x02"
    )
    (made,) = copies_of(stored(40, properties=said))
    assert isinstance(made, Copies)
    (entry,) = made.entries
    assert entry.body == b"body"
    assert entry.flag == 4
    assert (made.born_ms, made.offsets, made.end, made.store_ms) == ([5], (40,), 41, 77)
    kept = entry.properties.partition(b"IMAGO_ORIGIN")[0]
    assert kept == b"TAGS\x01paid\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AB\x02region\x01eu\x02"
    assert b"IMAGO_ORIGIN\x01A/orders/7/shard-0/3/40\x02" in entry.properties
    assert read_wire(entry.properties) == Sequence(producer_of(QUEUE), 11, 100)


def test_an_empty_attribute_of_metaqs_stays() -> None:
    assert split_properties(b"TAGS\x01\x02")[0] == b"TAGS\x01\x02"


def copied_from(queue: SourceQueue, offset: int) -> bytes:
    sent = Sequence(producer_of(queue), 1, 5)
    return b"IMAGO_ORIGIN\x01%b\x02" % str(Origin(queue, offset)).encode() + stored_property(sent)


def test_what_came_from_the_target_is_not_copied_and_its_place_there_is_told() -> None:
    first, back, last = copies_of(
        stored(0), stored(1, properties=copied_from(THERE, 55)), stored(2)
    )
    assert isinstance(first, Copies)
    assert isinstance(last, Copies)
    assert back == Returned(1, Origin(THERE, 55), 77, is_proven=True)
    assert read_wire(last.entries[0].properties) == Sequence(producer_of(QUEUE), 11, 101)


@pytest.mark.parametrize(
    "said",
    [
        b"IMAGO_ORIGIN\x01B/orders/9/shard-1/2/55\x02",  # the echo of a copy, sent by anybody
        b"IMAGO_ORIGIN\x01nonsense\x02" + stored_property(Sequence(producer_of(THERE), 1, 5)),
        b"IMAGO_ORIGIN\x01B/orders/9/shard-1/2/55\x02" + stored_property(Sequence("0" * 16, 1, 5)),
    ],
)
def test_an_echo_is_a_message_like_any_other(said: bytes) -> None:
    (made,) = copies_of(stored(1, properties=said))
    assert isinstance(made, Copies)
    assert made.entries[0].properties.count(b"IMAGO_ORIGIN") == 1
    assert b"A/orders/7/shard-0/3/1\x02" in made.entries[0].properties


def test_a_users_producer_is_known_as_well_and_a_ring_ends_where_it_began() -> None:
    """Access control puts a tag behind the id of a producer."""
    middle = SourceQueue("C", "orders", 1, "shard-0", 0)
    hops = f"{Origin(middle, 8)},{Origin(THERE, 55)}".encode()
    tagged = stored_property(Sequence(producer_of(middle) + "f" * 16, 1, 5))
    (back,) = copies_of(stored(1, properties=b"IMAGO_ORIGIN\x01%b\x02" % hops + tagged))
    assert back == Returned(1, Origin(THERE, 55), 77, is_proven=False)


@pytest.mark.parametrize(
    ("sender", "user", "counts"),
    [("", None, True), ("", "mirror", True), ("mirror", "mirror", True), ("eve", "mirror", False),
     ("eve", None, False)],
)  # fmt: skip
def test_what_somebody_else_numbers_as_a_mirror_does_says_nothing_of_how_far_it_is(
    sender: str, user: str | None, counts: bool
) -> None:
    """Else a user who may publish there has the mirror pass over all that was not copied yet."""
    forged = Sequence(producer_of(THERE) + (user_tag(sender) if sender else ""), 0, 0)
    said = b"IMAGO_ORIGIN\x01%b\x02" % str(Origin(THERE, 10**9)).encode()
    message = stored(4, properties=said + stored_property(forged))
    assert bool(list(tails([message], user))) == counts
    (back,) = steps([message], Numbering(QUEUE, 11, 100, 0), "B", user)
    assert isinstance(back, Returned)
    assert back.is_proven == counts, "groups are told nothing of places that nobody has copied"


def test_hops_are_bounded() -> None:
    queues = [SourceQueue(f"c{n}", "orders", 1, "s", 0) for n in range(HOPS_MAX + 4)]
    hops = ",".join(str(Origin(queue, 1)) for queue in queues)
    assert len(read_hops(hops.encode())) == HOPS_MAX
    said = b"IMAGO_ORIGIN\x01%b\x02" % hops.encode()
    sent = stored_property(Sequence(producer_of(queues[0]), 1, 5))
    (made,) = copies_of(stored(1, properties=said + sent))
    assert isinstance(made, Copies)
    value = made.entries[0].properties.partition(b"IMAGO_ORIGIN\x01")[2].partition(b"\x02")[0]
    assert value.count(b",") == HOPS_MAX - 1


def test_requests_end_at_their_bounds_and_where_bodies_are_packed_otherwise() -> None:
    many = copies_of(*(stored(n) for n in range(BATCH_MESSAGES_MAX + 1)))
    assert [len(each.entries) for each in many] == [BATCH_MESSAGES_MAX, 1]  # type: ignore[union-attr]
    large = copies_of(*(stored(n, body=bytes(BATCH_BYTES_MAX // 2)) for n in range(2)))
    assert len(large) == 2
    mixed = copies_of(stored(0), stored(1, sys_flag=1), stored(2))
    assert [each.sys_flag for each in mixed] == [0, 1, 0]  # type: ignore[union-attr]
    numbers = [read_wire(each.entries[0].properties) for each in mixed]  # type: ignore[union-attr]
    assert [each.number for each in numbers if each is not None] == [100, 101, 102]


def test_what_is_at_the_target_already_is_passed_over() -> None:
    (made,) = copies_of(stored(4), stored(5), stored(6), copied=6)
    assert isinstance(made, Copies)
    assert made.offsets == (6,)


def test_a_target_queue_tells_its_copies() -> None:
    found = list(tails([stored(3), stored(4, properties=copied_from(THERE, 55))]))
    assert [(each.origin, each.epoch, each.number, each.offset) for each in found] == [
        (Origin(THERE, 55), 1, 5, 4)
    ]


def test_times_of_birth_travel_beside_the_batch() -> None:
    assert encode_births([7, 7, 7]) == ""
    said = encode_births([7, 9, 3]).encode()
    assert decode_births(said, 7, 3) == [7, 9, 3]
    assert decode_births(said, 7, 2) is None
    assert decode_births(b"", 7, 2) is None
    assert decode_births(b"IMAGO_BORN\x01x,y\x02", 7, 2) is None
    assert decode_births(b"IMAGO_BORN\x01-9,0\x02", 7, 2) is None, "before 1970"


def test_queues_get_queues_of_their_own_and_keep_them() -> None:
    sources = [QueuePlace(f"shard-{s}", q) for s in range(2) for q in range(3)]
    same = assign(sources, sources, {})
    assert same == {each: each for each in sources}
    assert queues_wanted(sources, 2) == 3
    assert queues_wanted(sources, 1) == 6
    assert queues_wanted(sources, 3) == 3
    one = [QueuePlace("shard-0", q) for q in range(6)]
    made = assign(sources, one, {})
    assert sorted(made.values()) == one
    more = assign([*sources, QueuePlace("shard-0", 3)], [*one, QueuePlace("shard-0", 6)], made)
    assert {each: more[each] for each in sources} == made
    assert more[QueuePlace("shard-0", 3)] == QueuePlace("shard-0", 6)
    shared = assign(sources, one[:2], {})
    assert set(shared.values()) == set(one[:2])
    moved = assign(sources, one[:5], made)
    assert all(moved[each] == made[each] for each in sources if made[each] in one[:5])
    assert assign(sources, [], {}) == {}


def test_a_note_is_read_as_it_was_written_and_bounded() -> None:
    map_ = OffsetMap()
    map_.note("shard-0/3@7", 5, 0, 9)
    place = QueuePlace("shard-1", 2)
    note = MirrorNote(
        number=3, state="copying", at_ms=9, order=4, report={"lacks": {}},
        lanes={QUEUE: CopiedQueue(place, 12, CopyPosition(1, 2, 3, 4, 5))},
        maps={("orders", place): map_},
    )  # fmt: skip
    found = decode(encode(note))
    assert found is not None
    assert (found.number, found.state, found.order, found.lanes) == (3, "copying", 4, note.lanes)
    assert found.maps["orders", place].parts == map_.parts
    assert decode(b"nonsense") is None
    assert decode(encode_order(Order(1, "copying"))) is None


def test_a_note_that_is_too_large_keeps_the_newest_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NOTE_BYTES_MAX < 4 << 20, "brokers take no larger message"
    monkeypatch.setattr("imago_mirror.core.notes.NOTE_BYTES_MAX", 400)
    note = MirrorNote()
    for queue in range(8):
        map_ = OffsetMap()
        for each in range(40):
            map_.note("q", each * 1234567, each * 7654321)
        note.maps["orders", QueuePlace("shard-0", queue)] = map_
    data = encode(note)
    found = decode(data)
    assert found is not None
    assert len(data) <= 400 or not any(map_.parts for map_ in found.maps.values())


def test_an_order_counts_once_and_the_newest_alone() -> None:
    assert decode_order(encode_order(Order(7, "failed-over"))) == Order(7, "failed-over")
    assert decode_order(b'{"order": 7, "state": "gone"}') is None
    note = MirrorNote(order=5, report={"lacks": {}})
    assert not take(note, [Order(5, "failed-over")])
    assert take(note, [Order(8, "copying"), Order(9, "failed-over")])
    assert (note.state, note.order, note.report) == ("failed-over", 9, {})


GOOD = """
[mirror]
name = "dr"
topics = ["orders", "pay-.*"]
[source]
bootstrap = "a:9876"
[target]
bootstrap = "b:9876"
"""


def test_settings_say_what_is_meant() -> None:
    found = read_settings(GOOD)
    assert found.wants_topic("pay-in")
    assert not found.wants_topic("orders2")
    assert found.topics_by_name == ("orders",)
    assert found.port == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "dr"', 'name = "D R"', "mirror.name"),
        ('topics = ["orders", "pay-.*"]', "topics = []", "mirror.topics: names none"),
        ('"pay-.*"', '"pay-("', "is no regular expression"),
        ('"orders", ', "3, ", "must be a list of texts"),
        ('bootstrap = "a:9876"', 'bootstrap = "a"', "is not host:port"),
        ('bootstrap = "a:9876"', 'bootstrap = "a:9876"\nuser = "u"', "password"),
        ('bootstrap = "b:9876"', 'bootstrp = "b:9876"', "target.bootstrp: unknown"),
        ("[target]", "[tarket]", "tarket: unknown"),
        ('name = "dr"', 'name = "dr"\nstate = "on"', "mirror.state"),
        ('name = "dr"', 'name = "dr"\nlisten = "8080"', "mirror.listen"),
        ("[mirror]", "[mirror", "it is no TOML"),
    ],
)
def test_wrong_settings_are_refused_in_words(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(MirrorSettingsError, match=said.replace("(", r"\(")):
        read_settings(GOOD.replace(old, new))
