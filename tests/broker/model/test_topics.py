"""Settings of topics and groups as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.declared import declared_topic
from imago_broker.model.topics.topics import TopicConfig

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)


@given(
    name=NAMES,
    read=st.integers(0, 64),
    write=st.integers(0, 64),
    perm=st.integers(0, 15),
    order=st.booleans(),
    attributes=st.dictionaries(NAMES, st.text(max_size=10), max_size=4),
)
def test_topic_survives_its_stored_form(
    name: str, read: int, write: int, perm: int, order: bool, attributes: dict[str, str]
) -> None:
    config = TopicConfig(
        name=name,
        read_queues=read,
        write_queues=write,
        perm=perm,
        order=order,
        attributes=attributes,
    )
    assert TopicConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"name": "../x"}, "letters"),
        ({"name": "t", "write_queues": -1}, "write_queues: -1"),
        ({"name": "t", "read_queues": 65537}, "read_queues: 65537"),
        ({"name": "t", "perm": 16}, "perm: 16"),
    ],
)
def test_impossible_topic_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TopicConfig(**settings)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("name", "dialects", "dual"),
    [
        ("t", None, True),
        ("t", "metaq,rocketmq", True),
        ("t", "rocketmq", False),
        ("SCHEDULE_TOPIC_XXXX", None, False),
        ("IMAGO_META", None, False),
        ("%RETRY%g", None, False),
        ("%DLQ%g", None, False),
    ],
)
def test_topic_is_dual_unless_it_opts_out_or_is_not_a_user_s(
    name: str, dialects: str | None, dual: bool
) -> None:
    attributes = {} if dialects is None else {"dialects": dialects}
    assert TopicConfig(name=name, attributes=attributes).dual is dual


def test_attributes_are_set_and_removed_in_a_copy() -> None:
    config = TopicConfig(name="t", attributes={"a": "1"})
    changed = config.with_attributes(metaq__stat="true", a=None)
    assert dict(changed.attributes) == {"metaq.stat": "true"}
    assert changed.metaq_stat is True
    assert config.metaq_stat is None


def test_group_survives_its_stored_form_and_a_later_version_s_fields() -> None:
    config = GroupConfig(name="g", retry_max_times=3, attributes={"k": "v"})
    assert GroupConfig.from_json(config.to_json()) == config
    assert GroupConfig.from_json({**config.to_json(), "new_field": 1}) == config


def test_group_with_an_impossible_name_is_refused() -> None:
    with pytest.raises(ValueError, match="group"):
        GroupConfig(name="a/b")


def test_declared_topic_has_the_words_of_the_file() -> None:
    config = declared_topic(
        "orders",
        {"queues": 3, "acknowledgement": "leader-fsync", "metaq_publish": False, "retention_ms": 5},
    )
    assert (config.write_queues, config.read_queues) == (3, 3)
    assert config.acknowledgement == "leader-fsync"
    assert not config.metaq_publish
    assert config.metaq_subscribe
    assert config.retention_ms == 5


def test_declared_topic_names_the_nearest_key() -> None:
    with pytest.raises(ValueError, match=r"kueues: .*did you mean queues"):
        declared_topic("t", {"kueues": 3})
