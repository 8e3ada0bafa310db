"""A resource with every default resolved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.config.cron import Cron, CronError
from imago_broker.config.loading import describe, from_tree, load, parse_tree, with_overrides
from imago_broker.config.sections import relations
from imago_broker.core.metaq.metaq_filters import check_config
from imago_cli.kubectl.planning.edit import edit_of
from imago_operator.broker_rules import keys as rules
from imago_operator.broker_rules.keys import KEYS
from imago_operator.manifests.config import toml
from imago_operator.model.desired import Desired, UnreadableSpec, desired_of
from imago_operator.spec.owned import OWNED_SETTINGS
from imago_testing.operated.resources import OPERATOR, resource, wanted
from imago_testing.searching import examples
from imago_tools.broker_keys import files

CRON = (
    r"[0-5]?[0-9](,[0-9]{1,2}|/[0-9])? [*] [0-9]-[0-9]"
    r" ([?] [*]|[0-9]{1,2} [*]|L 1-6) ([?]|6L|6#[0-9]|MON-FRI)"
)
LOOSE = sorted(
    name
    for name in KEYS
    if name not in OWNED_SETTINGS and not name.startswith("token_review.")  # of a field of its own
)
NEWER = replace(OPERATOR, version="1.3.0")


def test_the_table_of_settings_is_that_of_the_brokers() -> None:
    for name, made in files().items():
        there = Path(rules.__file__).with_name(name).read_text("utf-8")
        assert there == made, "run `make docs`"
    brokers = {key.key: tuple(key.rule) for key in describe()}
    assert {name: tuple(key) for name, key in KEYS.items()} == brokers
    assert repr(rules.RELATIONS) == repr(relations.RELATIONS)


def refusals(config: dict[str, int | str]) -> tuple[str, str]:
    """What the operator, and what a broker says of settings; empty: nothing."""
    found = desired_of(resource({"spec.brokers.config": config}), OPERATOR)
    tree = parse_tree(toml(wanted({}).settings))
    try:
        with_overrides(tree, [f"{name}={said}" for name, said in config.items()])
        # A broker's number in its shard is told to each pod.
        tree["broker"]["shard"] = wanted({}).spec.brokers.shards - 1
        check_config(from_tree(tree))
        broker = ""
    except ValueError as error:
        broker = str(error)
    return found.problem if isinstance(found, UnreadableSpec) else "", broker


def tries(name: str) -> list[int | str]:
    """Values of a setting at its bounds and beyond, and such as have another form."""
    key = KEYS[name]
    ends = [end for end in (key.low, key.high) if end is not None]
    near = [end + by for end in ends for by in (-1, -0.01, 0, 1)]
    numbers = [number for number in near if isinstance(key.default, float) or number == int(number)]
    words: list[int | str] = [
        *key.one_of,
        "x",
        "*",
        "a b",
        "a:1",
        "a:0",
        "nan",
        "inf",
        "/meta/",
        "//",
    ]
    words += [
        "0 0 6 * * ?",
        "0 0 6 * * *",
        "1s 2x",
        "10.0.0.0/8",
        "https://a",
        "z" * 256,
        "\x07",
        ",",
    ]
    return [*map(str, numbers), *words, -1, 0, 1, 7]


@pytest.mark.parametrize("name", LOOSE)
def test_the_operator_refuses_what_brokers_refuse_of_a_setting(name: str) -> None:
    for said in tries(name):
        operator, broker = refusals({name: said})
        assert bool(operator) == bool(broker), (name, said, operator, broker)
        assert not operator or name in operator or name.split(".")[1] in operator


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(st.sampled_from(LOOSE), st.integers(0, 40), min_size=2, max_size=6))
def test_the_operator_refuses_what_brokers_refuse_of_several(chosen: dict[str, int]) -> None:
    config = {name: (values := tries(name))[at % len(values)] for name, at in chosen.items()}
    operator, broker = refusals(config)
    assert bool(operator) == bool(broker), (config, operator, broker)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"store.disk_full_ratio": 7}, "[store.disk_full_ratio]: 7.0, must be at most 1"),
        ({"store.disk_full_ratio": "nan"}, "must be at least 0.05"),
        ({"store.disk_full_ratio": "0.8"}, "store.disk_force_ratio: 0.85, must be at most"),
        ({"store.segment_bytes_max": 65536}, "rocketmq.message_bytes_max: 4194304, does not fit"),
        ({"security.allow_open": "false"}, "security.allow_open: false, and all that reach"),
        ({"tls.client_auth": "perhaps"}, "must be one of none, optional, required"),
        (
            {"store.delete_when": "0 0 25 * * ?"},
            "'0 0 25 * * ?', must be a cron expression that begins with seconds, like 0 0 6,18 * *",
        ),
        ({"metaq.zk_root": "meta"}, "[metaq.zk_root]: 'meta', must be a path, like /meta"),
        ({"metaq.samsa_slave": "host"}, "'host', must be host:port, like gregor.example:8123"),
        ({"metaq.broker_id_base": 1024}, "1024, must be at most 1023"),
    ],
)
def test_a_setting_with_which_no_broker_starts_is_no_spec(
    config: dict[str, int | str], said: str
) -> None:
    """All pods share one file: one that restarts for any reason would not come back."""
    found = desired_of(resource({"spec.brokers.config": config}), OPERATOR)
    assert isinstance(found, UnreadableSpec)
    assert said in found.problem
    old = resource({})
    refused = edit_of(old, resource({"spec.brokers.config": config}), OPERATOR)
    assert isinstance(refused, str), "what `kubectl imago plan` shows"
    assert said in refused


@given(st.text("0123456789*?,-/L#W JANFRI", max_size=24) | st.from_regex(CRON, fullmatch=True))
@settings(max_examples=examples(400), deadline=None)
def test_the_pattern_of_times_is_that_of_their_parser(text: str) -> None:
    try:
        Cron.parse(text)
        parsed = True
    except CronError:
        parsed = False
    assert (KEYS["store.delete_when"].pattern_problem(text) is None) == (parsed or not text)


@pytest.mark.parametrize(
    ("replicas", "level", "least"), [(1, "leader", 1), (2, "replicated", 2), (3, "replicated", 2)]
)
def test_levels_follow_the_number_of_members(replicas: int, level: str, least: int) -> None:
    desired = wanted({"spec.brokers.replicasPerShard": replicas})
    assert (desired.acknowledgement, desired.min_in_sync) == (level, least)


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_brokers_read_the_file_they_get(replicas: int) -> None:
    settings = {"store.scrub_interval_ms": 5, "metaq.topic_patterns": "a*,b", "metaq.stat": "true"}
    desired = wanted({"spec.brokers.replicasPerShard": replicas, "spec.brokers.config": settings})

    config = load(toml(desired.settings))

    assert config.broker.cluster == "demo"
    assert config.broker.replicas == replicas
    assert config.zookeeper.connect == "demo-zookeeper.mq.svc:2181"
    assert config.acknowledgement_level == desired.acknowledgement
    assert config.min_in_sync == desired.min_in_sync
    assert config.store.scrub_interval_ms == 5
    assert config.metaq.topic_patterns == ("a*", "b")
    assert config.metaq.stat is True


def test_the_file_has_no_mere_defaults() -> None:
    """A broker of an older version refuses a setting that it does not know."""
    desired = wanted({"spec.brokers.config": {"metaq.stat": "true"}})
    assert desired.settings["metaq.stat"] is True
    assert "rocketmq.pull_hold_ms_max" not in desired.settings
    assert desired.dynamic["rocketmq.pull_hold_ms_max"] == 30_000


def test_external_zookeeper_is_named_with_its_chroot() -> None:
    external = {"servers": ["a:2181", "b:2181"], "chroot": "/mq"}
    desired = wanted({"spec.zookeeper": {"external": external}})
    assert desired.zookeeper_connect == "a:2181,b:2181/mq"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"spec.brokers.config": {"store.retention": 1}},
            "spec.brokers.config[store.retention]: no such setting; store.retention_ms?",
        ),
        (
            {"spec.brokers.config": {"store.scrub_interval_ms": "3d"}},
            "spec.brokers.config[store.scrub_interval_ms]: '3d' must be a number",
        ),
        ({"spec.brokers.config": {"metaq.stat": 1}}, '1 must be "true" or "false"'),
        ({"spec.brokers.shards": 0}, "spec.brokers.shards: must be at least 1"),
    ],
)
def test_what_no_server_can_see_is_refused_too(changes: dict[str, object], said: str) -> None:
    found = desired_of(resource(changes), OPERATOR)
    assert isinstance(found, UnreadableSpec)
    assert said in found.problem


@pytest.mark.parametrize(
    ("operator", "version", "said"),
    [
        ("1.2.3", "1.2.3", None),
        ("1.2.3", "1.2.0", None),
        ("1.2.3", "1.1.9", None),
        ("1.2.3", "1.2.4", "1.2.4 is newer than the operator, 1.2.3"),
        ("1.2.3", "1.3.0", "1.3.0 is newer than the operator, 1.2.3"),
        ("1.2.3", "1.0.9", "1.0.9 is too old for operator 1.2.3, which runs 1.1 and 1.2"),
        ("1.0.0", "0.9.0", "0.9.0 is too old for operator 1.0.0, which runs 1.0"),
        ("1.10.0", "1.9.0", None),
        ("1.10.0", "1.2.0", "1.2.0 is too old for operator 1.10.0, which runs 1.9 and 1.10"),
    ],
)
def test_an_operator_runs_its_own_minor_line_and_the_one_before(
    operator: str, version: str, said: str | None
) -> None:
    known = replace(OPERATOR, version=operator)
    found = desired_of(resource({"spec.version": version}), known)
    if said is None:
        assert isinstance(found, Desired)
        assert (found.version, found.image) == (version, f"imago/broker:{version}")
    else:
        assert isinstance(found, UnreadableSpec)
        assert found.reason == "UnsupportedVersion"
        assert said in found.problem


def test_annotations_order() -> None:
    desired = wanted(
        annotations={
            "imago.dev/pause-reconciliation": "true",
            "imago.dev/restart": "now",
            "imago.dev/approve": "roll-1",
            "imago.dev/allow-data-loss": "3",
        }
    ).resource
    assert (desired.paused, desired.restart) == (True, "now")
    assert (desired.approved, desired.allow_data_loss) == ("roll-1", "3")


class TestWhatTheUserSaid:
    """The fingerprint that tells an edit of the user from a new operator."""

    def test_stays_with_a_new_operator(self) -> None:
        assert wanted().spec_hash == wanted(operator=NEWER).spec_hash
        assert wanted().image != wanted(operator=NEWER).image

    @pytest.mark.parametrize(
        "changes",
        [
            {"spec.brokers.shards": 3},
            {"spec.brokers.replicasPerShard": 5},
            {"spec.brokers.storage.size": "20Gi"},
            {"spec.brokers.acknowledgement": "leader"},
            {"spec.brokers.config": {"rocketmq.pull_hold_ms_max": 5}},
            {"spec.updatePolicy": {"mode": "Manual"}},
            {"spec.logging": {"level": "info"}},
        ],
    )
    def test_stays_where_pods_do_not_change(self, changes: dict[str, object]) -> None:
        assert wanted(changes).spec_hash == wanted().spec_hash

    @pytest.mark.parametrize(
        "changes",
        [
            {"spec.image": "mine:1"},
            {"spec.version": "1.1.0"},
            {"spec.brokers.config": {"store.scrub_interval_ms": 5}},
            {"spec.brokers.resources": {"requests": {"cpu": 2}}},
            {"spec.logging": {"level": "debug"}},
            {"spec.brokers.template": {"pod": {"metadata": {"labels": {"a": "b"}}}}},
        ],
    )
    def test_changes_where_pods_do(self, changes: dict[str, object]) -> None:
        assert wanted(changes).spec_hash != wanted().spec_hash

    def test_changes_with_an_order_to_restart(self) -> None:
        assert wanted(annotations={"imago.dev/restart": "x"}).spec_hash != wanted().spec_hash
