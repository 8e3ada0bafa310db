"""Topics: made, changed, deleted, and how the put path sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.errors import InvalidNameError, RequestError
from imago_broker.model.names import DEFAULT_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from imago_broker.model.topics.topics import METAQ_STAT, TopicConfig
from imago_broker.service.topics.topics import TopicService
from imago_testing.stores.manual import ManualStore

if TYPE_CHECKING:
    from imago_log.store import MessageStore

LEADER = Acknowledgement.LEADER
FSYNC = Acknowledgement.LEADER_FSYNC


def service(store: ManualStore | None = None, **changes: object) -> TopicService:
    settings: dict[str, object] = {
        "default_level": LEADER,
        "topics_max": 10,
        "auto_create_enabled": True,
        "default_queues": 8,
        "before_change": lambda: None,
        **changes,
    }
    made = cast("MessageStore", store or ManualStore())
    return TopicService(made, **settings)  # type: ignore[arg-type]  # the defaults above fit


def test_topic_is_stored_before_listeners_hear_of_it() -> None:
    store = ManualStore()
    topics = service(store)
    heard: list[tuple[str, bool]] = []
    topics.on_change.append(lambda name, _: heard.append((name, name in store.topic_values)))
    topics.create_or_update(TopicConfig(name="t"))
    assert heard == [("t", True)]
    assert topics.get("t") == TopicConfig(name="t")


def test_topics_are_found_again_by_the_next_process() -> None:
    store = ManualStore()
    service(store).create_or_update(TopicConfig(name="t", write_queues=3))
    assert service(store).get("t") == TopicConfig(name="t", write_queues=3)


def test_the_brokers_own_topics_are_as_they_have_to_be_when_it_leads() -> None:
    """Also where an older version let somebody change them."""
    store = ManualStore()
    service(store).ensure_own(HALF_TOPIC)
    for name in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, DEFAULT_TOPIC):
        short = TopicConfig(name=name, read_queues=1, write_queues=0, perm=4)
        store.create_topic(name, short.to_json())
    topics = service(store)
    found = {config.name: (config.write_queues, config.perm) for config in topics.all()}
    assert found[SCHEDULE_TOPIC] == (19, 6)
    assert found[TIMER_TOPIC] == (1025, 6)
    assert found[HALF_TOPIC] == (1, 6)
    assert found[DEFAULT_TOPIC] == (8, 7)


def test_puts_are_appended_before_their_topic_changes_or_goes() -> None:
    calls: list[str] = []
    topics = service(before_change=lambda: calls.append("flush"))
    topics.create_or_update(TopicConfig(name="t"))
    topics.create_or_update(TopicConfig(name="t", write_queues=1))
    topics.delete("t")
    assert calls == ["flush"] * 3


def test_equal_settings_change_nothing() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t"))
    heard: list[str] = []
    topics.on_change.append(lambda name, _: heard.append(name))
    topics.create_or_update(TopicConfig(name="t"))
    assert heard == []


def test_deleting_tells_whether_there_was_a_topic() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t"))
    assert topics.delete("t")
    assert not topics.delete("t")
    assert topics.get("t") is None


def test_system_topic_is_not_deleted() -> None:
    with pytest.raises(RequestError, match="broker itself"):
        service().delete("TBW102")


def test_more_topics_than_the_limit_are_refused() -> None:
    given = len(service().all())
    topics = service(topics_max=given + 1)
    topics.create_or_update(TopicConfig(name="a"))
    with pytest.raises(RequestError, match=f"{given + 1} topics already"):
        topics.create_or_update(TopicConfig(name="b"))
    topics.create_or_update(TopicConfig(name="a", write_queues=2))


def test_what_is_fixed_at_creation_stays() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t"))
    with pytest.raises(RequestError, match="fixed when it is made"):
        topics.create_or_update(TopicConfig(name="t", attributes={"dialects": "rocketmq"}))


def test_unknown_level_is_refused() -> None:
    with pytest.raises(RequestError, match="must be one of leader"):
        service().create_or_update(TopicConfig(name="t", attributes={"acknowledgement": "all"}))


def test_handle_has_the_level_of_the_topic_or_the_broker() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="a", attributes={"acknowledgement": "leader-fsync"}))
    topics.create_or_update(TopicConfig(name="b"))
    assert topics.handles.level_of(b"a") is FSYNC
    assert topics.handles.level_of(b"b") is LEADER
    topics.handles.set_default_level(Acknowledgement.REPLICATED)
    assert topics.handles.level_of(b"a") is FSYNC
    assert topics.handles.level_of(b"b") is Acknowledgement.REPLICATED
    assert topics.handles.level_of(b"\xff") is Acknowledgement.REPLICATED


def test_handle_is_replaced_when_the_topic_changes() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t", write_queues=1))
    first = topics.handles.of("t")
    assert first is not None
    assert first is topics.handles.of("t")
    topics.create_or_update(TopicConfig(name="t", write_queues=4))
    second = topics.handles.of("t")
    assert second is not None
    assert (first.partitions, second.partitions) == (1, 4)
    topics.delete("t")
    assert topics.handles.of("t") is None


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (16, 8), (0, 1), (-3, 1)])
def test_auto_created_topic_has_at_most_the_template_s_queues(asked: int, made: int) -> None:
    config = service().auto_create("new", default_topic="TBW102", default_queues=asked)
    assert config is not None
    assert (config.write_queues, config.read_queues, config.perm) == (made, made, 6)


def test_auto_creation_can_be_off_but_not_for_retries() -> None:
    topics = service(auto_create_enabled=False)
    assert topics.auto_create("new", default_topic="TBW102", default_queues=4) is None
    retry = topics.auto_create("%RETRY%g", default_topic="", default_queues=0, for_retry=True)
    assert retry is not None
    assert (retry.write_queues, retry.perm) == (1, 6)


def test_auto_creation_needs_a_template_that_can_be_inherited() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="plain"))
    assert topics.auto_create("new", default_topic="plain", default_queues=4) is None
    assert topics.auto_create("new", default_topic="missing", default_queues=4) is None


def test_auto_creation_refuses_a_name_that_is_none() -> None:
    with pytest.raises(InvalidNameError):
        service().auto_create("../x", default_topic="TBW102", default_queues=4)


def test_materialised_topic_stays_so() -> None:
    store = ManualStore()
    topics = service(store)
    topics.create_or_update(TopicConfig(name="t"))
    topics.materialise("t")
    topics.materialise("t")
    assert store.materialised == ["t"]
    topics.create_or_update(TopicConfig(name="t", write_queues=2))
    config = topics.get("t")
    assert config is not None
    assert config.materialised


def test_topic_that_opted_out_is_never_materialised() -> None:
    store = ManualStore()
    topics = service(store)
    topics.create_or_update(TopicConfig(name="t", attributes={"dialects": "rocketmq"}))
    topics.materialise("t")
    assert store.materialised == []


def test_closed_partitions_are_per_topic_and_opened_together() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t"))
    assert topics.handles.close_partitions("t", 1, 2)
    assert topics.handles.close_partitions("t", 5, 5)
    assert topics.handles.closed_partitions("t") == {1, 2, 5}
    assert topics.handles.closed_partitions("u") == frozenset()
    assert topics.handles.open_partitions("t")
    assert topics.handles.closed_partitions("t") == frozenset()


@pytest.mark.parametrize(("name", "first", "last"), [("u", 0, 1), ("t", 2, 1), ("t", -1, 1)])
def test_closing_what_is_not_there_does_nothing(name: str, first: int, last: int) -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t"))
    assert not topics.handles.close_partitions(name, first, last)


def test_closing_a_poisonous_range_costs_no_more_than_the_limit() -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t"))
    assert topics.handles.close_partitions("t", 0, 2**63 - 1)
    assert len(topics.handles.closed_partitions("t")) == 65537


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("acknowledgement", "leader", "all"),
        ("dialects", "metaq,rocketmq", "metaq"),
        ("metaq.publish", "false", "no"),
        ("metaq.stat", "true", "True"),
        ("metaq.subscribe", "false", ""),
        ("retention.bytes", "0", "1GiB"),
        ("retention.ms", "259200000", "3d"),
        ("retention.ms", "9223372036854775807", "9223372036854775808"),
        ("retention.ms", "1", "-1"),
        ("retention.ms", "1", "٣"),
    ],
)
def test_our_attributes_are_checked_when_they_are_set(name: str, good: str, bad: str) -> None:
    topics = service()
    topics.create_or_update(TopicConfig(name="t", attributes={name: good, "others": "3d"}))
    with pytest.raises(RequestError, match=f"topic t: {name}: "):
        topics.create_or_update(TopicConfig(name="t", attributes={name: bad}))
    made = topics.get("t")
    assert made is not None
    assert made.attributes[name] == good


def test_topic_that_cannot_be_read_costs_only_itself() -> None:
    store = ManualStore()
    service(store).create_or_update(TopicConfig(name="t"))
    odd = {"retention.ms": "3d", "acknowledgement": "all"}
    store.create_topic("odd", TopicConfig(name="odd", attributes=odd).to_json())
    store.create_topic("broken", {"read_queues": "x"})
    topics = service(store)
    config, handle = topics.get("odd"), topics.handles.of("odd")
    assert config is not None
    assert config.retention_ms is None
    assert handle is not None
    assert handle.level is LEADER
    assert topics.get("t") is not None
    assert topics.get("broken") is None


def test_a_change_of_one_topic_looks_at_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten thousand topics of a file are made one after the other."""
    topics = service(topics_max=50)
    asked: list[str] = []
    told: property = vars(TopicConfig)["metaq_stat"]

    def counted(config: TopicConfig) -> object:
        asked.append(config.name)
        return told.__get__(config)

    monkeypatch.setattr(TopicConfig, "metaq_stat", property(counted))
    for number in range(20):
        attributes = {METAQ_STAT: "true"} if number % 2 else {}
        topics.create_or_update(TopicConfig(name=f"t-{number}", attributes=attributes))
    assert len(asked) <= 40
    assert topics.with_stat == {f"t-{number}" for number in range(1, 20, 2)}
    topics.delete("t-1")
    topics.create_or_update(TopicConfig(name="t-3", attributes={METAQ_STAT: "false"}))
    assert topics.with_stat == {f"t-{number}" for number in range(5, 20, 2)}
