"""What checkpoints remember, and whether it still means what is there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_client import MessageQueue
from imago_spark.choosing.topic_choice import TopicChoice
from imago_spark.errors import DataLossError, OffsetError
from imago_spark.incarnations import Incarnation
from imago_spark.options import SourceOptions, parse_options
from imago_spark.progress import Existing, Progress, continued, from_option

A0, A1, B0 = (MessageQueue("t", shard, number) for shard, number in (("a", 0), ("a", 1), ("b", 0)))
OLD = Incarnation(None, 1851)
UPGRADED = Incarnation(1 << 62, 1851)
NEW = Incarnation((1 << 62) + 5, (1 << 62) + 5)
queues = st.builds(
    MessageQueue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 12)
)
offsets = st.dictionaries(queues, st.integers(0, 10_000), max_size=12)
incarnations = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"])),
    st.sampled_from([UPGRADED, Incarnation(None, 7)]),
)
subscriptions = st.one_of(
    st.none(),
    st.builds(TopicChoice, topics=st.frozensets(st.sampled_from("tu"), min_size=1)),
    st.builds(TopicChoice, assigned=st.frozensets(queues, min_size=1)),
    st.builds(TopicChoice, pattern=st.just("t.*"), include_system=st.booleans()),
)
progresses = st.builds(
    Progress,
    offsets=offsets,
    incarnations=incarnations,
    cluster=st.sampled_from([None, "c"]),
    subscription=subscriptions,
)


@given(progresses, st.randoms())
def test_the_engines_form_comes_back_and_is_one_text(found: Progress, rng: object) -> None:
    text = json.dumps(found.to_json())
    assert Progress.from_json(json.loads(text)) == found
    items, made = list(found.offsets.items()), list(found.incarnations.items())
    rng.shuffle(items)  # type: ignore[attr-defined]  # hypothesis' own Random
    rng.shuffle(made)  # type: ignore[attr-defined]
    assert (
        json.dumps(replace(found, offsets=dict(items), incarnations=dict(made)).to_json()) == text
    )
    value = found.to_json()
    assert list(value) == sorted(value)


def test_checkpoints_of_the_first_version_are_read() -> None:
    value = {"incarnations": {"t": {"a": 1851}}, "topics": {"t": {"a": {"0": 3}}}, "v": 1}
    assert Progress.from_json(value) == Progress(offsets={A0: 3}, incarnations={("t", "a"): OLD})
    with pytest.raises(OffsetError, match="new checkpointLocation"):
        Progress.from_json({"v": 3, "topics": {}})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"incarnations": 3}, "incarnations"),
        ({"incarnations": {"t": {"a": "x"}}}, "incarnations"),
        ({"incarnations": {"t": {"a": [1]}}}, "incarnations"),
        ({"cluster": 3}, "cluster"),
        ({"subscription": {"subscribe": 3}}, "subscription"),
        ({"subscription": {"subscribePattern": "("}}, "subscription"),
        ({"subscription": {}}, "subscription"),
    ],
)
def test_damaged_checkpoints_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(OffsetError, match=why):
        Progress.from_json({"v": 2, "topics": {}, **wrong})


def test_options_list_queues_by_topic_shard_and_number() -> None:
    found = from_option('{"t": {"a": {"0": 23, "1": -1}, "b": {"0": -2}}}', "startingOffsets")
    assert found == Progress(offsets={A0: 23, A1: -1, B0: -2})
    whole = Progress(offsets={A0: 3}, incarnations={("t", "a"): UPGRADED}, cluster="c")
    told = replace(whole, subscription=TopicChoice(topics=frozenset("tu")))
    assert from_option(json.dumps(told.to_json()), "startingOffsets") == whole
    topic_v = from_option('{"v": {"a": {"0": 23}}}', "startingOffsets")
    assert topic_v.offsets == {MessageQueue("v", "a", 0): 23}


@pytest.mark.parametrize(
    "text",
    ["sometime", "[]", '{"t": 5}', '{"t": {"a": {"x": 1}}}', '{"t": {"a": {"0": "1"}}}',
     '{"t": {"a": {"0": true}}}', '{"t": {"a": {"0": -3}}}', '{"v": 9, "topics": {}}'],
)  # fmt: skip
def test_wrong_offsets_in_an_option_are_refused(text: str) -> None:
    with pytest.raises(OffsetError, match="startingOffsets"):
        from_option(text, "startingOffsets")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (OLD, UPGRADED, True),
        (UPGRADED, UPGRADED, True),
        (UPGRADED, Incarnation((1 << 62) + 1, 1851), False),
        (OLD, Incarnation(1 << 62, 1852), False),
        (NEW, NEW, True),
        (Incarnation(None, NEW.number), NEW, True),
        (NEW, UPGRADED, False),
    ],
)
def test_incarnations_are_compared_by_what_both_know(
    one: Incarnation, other: Incarnation, same: bool
) -> None:
    assert one.is_same(other) is same
    assert other.is_same(one) is same
    assert Incarnation.from_json(one.to_json()).is_same(one)


def options(**given: str) -> SourceOptions:
    return parse_options({"bootstrap": "h:1", **given})


@pytest.mark.parametrize(
    ("before", "now", "covered"),
    [
        ({"subscribe": "a"}, {"subscribe": "a"}, True),
        ({"subscribe": "a"}, {"subscribe": "b,a"}, True),
        ({"subscribe": "a,b"}, {"subscribe": "a"}, False),
        ({"subscribe": "a"}, {"subscribe": "b"}, False),
        ({"subscribe": "a"}, {"subscribePattern": "[ab]"}, True),
        ({"subscribe": "ab"}, {"subscribePattern": "[ab]"}, False),
        ({"subscribe": "a"}, {"assign": '{"a": {"s": [0]}}'}, False),
        ({"assign": '{"a": {"s": [0]}}'}, {"assign": '{"a": {"s": [0, 1]}}'}, True),
        ({"assign": '{"a": {"s": [0, 1]}}'}, {"assign": '{"a": {"s": [0]}}'}, False),
        ({"assign": '{"a": {"s": [0]}}'}, {"subscribe": "a"}, True),
        ({"assign": '{"a": {"s": [0]}}'}, {"subscribe": "b"}, False),
        ({"subscribePattern": "a.*"}, {"subscribePattern": "a.*"}, True),
        ({"subscribePattern": "a.*"}, {"subscribePattern": "a.+"}, False),
        ({"subscribePattern": "a.*"}, {"subscribe": "a"}, False),
        (
            {"subscribePattern": "a.*", "includeSystem": "true"},
            {"subscribePattern": "a.*"},
            False,
        ),
        (
            {"subscribePattern": "a.*"},
            {"subscribePattern": "a.*", "includeSystem": "true"},
            True,
        ),
    ],
)
def test_a_query_reads_no_less_than_its_checkpoint(
    before: dict[str, str], now: dict[str, str], covered: bool
) -> None:
    old, new = options(**before).subscription, options(**now).subscription
    assert new.covers(old) is covered
    checkpoint = Progress(offsets={A0: 3}, subscription=old)
    present = Existing(read=Progress(offsets={A0: 3}, subscription=new))
    if covered:
        return
    with pytest.raises(DataLossError, match=r"t/a/0: read up to offset 3 of .* leaves out"):
        continued(checkpoint, present, skips=False)


BEFORE = Progress(offsets={A0: 3, A1: 5}, incarnations={("t", "a"): NEW}, cluster="c")


def at(offsets: dict[MessageQueue, int], **more: object) -> Progress:
    return replace(BEFORE, offsets=offsets, **more)  # type: ignore[arg-type]


OTHER = {("t", "a"): UPGRADED}


@pytest.mark.parametrize(
    ("now", "why", "left"),
    [
        (Existing(read=at({A0: 9, A1: 5})), None, {A0: 3, A1: 5}),
        (Existing(read=at({A0: 9}), hidden=at({A1: 5})), None, {A0: 3, A1: 5}),
        (Existing(read=at({A0: 9}), waiting={A1}), None, {A0: 3, A1: 5}),
        (
            Existing(read=at({A0: 9}), hidden=at({A1: 8})),
            r"t/a/1: offsets 5 to 7 are unread.*read queues",
            {A0: 3},
        ),
        (Existing(read=at({A0: 9})), "t/a/1: messages from offset 5 on .* is gone", {A0: 3}),
        (
            Existing(read=at({A0: 9, A1: 9}, incarnations=OTHER)),
            "t/a/0: read up to offset 3, .* deleted and created again",
            {},
        ),
        (
            Existing(read=at({A0: 9, A1: 9}, incarnations={})),
            "t/a/0: messages from offset 3 on .* is gone",
            {},
        ),
        (
            Existing(read=at({A0: 9, A1: 9}, cluster="d")),
            "t/a/0: read up to offset 3 in cluster c, .* are of cluster d",
            {A0: 3, A1: 5},
        ),
        (Existing(read=at({A0: 9, A1: 9}, cluster=None, incarnations={})), None, {A0: 3, A1: 5}),
        (
            Existing(read=at({A0: 9}, subscription=options(subscribe="u").subscription)),
            "t/a/1: read up to offset 5, .* leaves it out",
            {A0: 3},
        ),
    ],
)
def test_nothing_that_is_remembered_is_left_out_in_silence(
    now: Existing, why: str | None, left: dict[MessageQueue, int]
) -> None:
    assert continued(BEFORE, now, skips=True).offsets == left
    if why is None:
        assert continued(BEFORE, now, skips=False).offsets == left
        return
    with pytest.raises(DataLossError, match=why) as caught:
        continued(BEFORE, now, skips=False)
    assert "checkpointLocation" in str(caught.value)
    assert "onDataLoss" in str(caught.value)


def test_topics_whose_incarnation_nobody_knew_are_told_apart_by_cluster() -> None:
    before = Progress(offsets={A0: 3}, cluster="c")
    now = Existing(read=at({A0: 9}, cluster="d"))
    assert continued(before, now, skips=True).offsets == {}
    assert continued(before, Existing(read=at({A0: 9})), skips=False).offsets == {A0: 3}


def test_an_end_that_went_back_is_an_error_in_any_case() -> None:
    for read, hidden in (({A0: 2, A1: 5}, {}), ({A0: 3}, {A1: 4})):
        now = Existing(read=at(read), hidden=at(hidden))
        for skips in (False, True):
            with pytest.raises(DataLossError, match="the queue now ends at"):
                continued(BEFORE, now, skips=skips)
