"""A resource with every default resolved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imago_broker.config.loading import describe, load
from imago_operator.brokerkeys import KEYS
from imago_operator.desired import Desired, UnreadableSpec, desired_of
from imago_operator.manifests.config import toml
from imago_testing.operated.resources import OPERATOR, resource, wanted

NEWER = replace(OPERATOR, version="1.3.0")


def test_the_table_of_settings_is_that_of_the_brokers() -> None:
    brokers = {key.key: (key.default, key.dynamic) for key in describe()}
    assert {name: tuple(key) for name, key in KEYS.items()} == brokers, "run `make docs`"


@pytest.mark.parametrize(
    ("replicas", "level", "least"), [(1, "leader", 1), (2, "replicated", 2), (3, "replicated", 2)]
)
def test_levels_follow_the_number_of_members(replicas: int, level: str, least: int) -> None:
    desired = wanted({"spec.brokers.replicasPerShard": replicas})
    assert (desired.acknowledgement, desired.min_in_sync) == (level, least)


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_brokers_read_the_file_they_get(replicas: int) -> None:
    settings = {"store.retention_ms": 5, "metaq.topic_patterns": "a*,b", "metaq.stat": "true"}
    desired = wanted({"spec.brokers.replicasPerShard": replicas, "spec.brokers.config": settings})

    config = load(toml(desired.settings))

    assert config.broker.cluster == "demo"
    assert config.broker.replicas == replicas
    assert config.zookeeper.connect == "demo-zookeeper.mq.svc:2181"
    assert config.acknowledgement_level == desired.acknowledgement
    assert config.min_in_sync == desired.min_in_sync
    assert config.store.retention_ms == 5
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
            {"spec.brokers.config": {"store.retention_ms": "3d"}},
            "spec.brokers.config[store.retention_ms]: '3d' must be a number",
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
            {"spec.brokers.replicasPerShard": 5},
            {"spec.brokers.config": {"store.retention_ms": 5}},
            {"spec.brokers.resources": {"requests": {"cpu": 2}}},
            {"spec.logging": {"level": "debug"}},
            {"spec.brokers.template": {"pod": {"metadata": {"labels": {"a": "b"}}}}},
        ],
    )
    def test_changes_where_pods_do(self, changes: dict[str, object]) -> None:
        assert wanted(changes).spec_hash != wanted().spec_hash

    def test_changes_with_an_order_to_restart(self) -> None:
        assert wanted(annotations={"imago.dev/restart": "x"}).spec_hash != wanted().spec_hash
