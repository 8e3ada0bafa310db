"""The configuration: TOML, environment, and mistakes in either."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imago_broker.config import ConfigError, load
from imago_broker.config.loading import describe, from_tree, to_tree, with_overrides
from imago_broker.config.sections.relations import RECORD_BYTES_AROUND_BODY


def test_defaults_need_no_text() -> None:
    config = load()
    assert config.metaq.port == 8123
    assert config.rocketmq.port == 10911
    assert config.zookeeper.connect == "none"
    # Every broker has two such files from its first moment on: a laptop must bear them.
    assert config.store.segment_bytes_max == 256 << 20


def test_text_then_environment() -> None:
    config = load(
        "[metaq]\nport = 1\ntopic_patterns = ['a*']\n[store]\ndisk_full_ratio = 1\n",
        {"IMAGO__METAQ__PORT": "2", "IMAGO__LOG__LEVEL": "debug", "HOME": "/x"},
    )
    assert config.metaq.port == 2
    assert config.metaq.topic_patterns == ("a*",)
    assert config.store.disk_full_ratio == 1.0
    assert config.log.level == "debug"


def test_environment_has_every_type() -> None:
    config = load(
        "",
        {
            "IMAGO__METAQ__ENABLED": "false",
            "IMAGO__METAQ__TOPIC_PATTERNS": "a*, b",
            "IMAGO__STORE__RETENTION_MS": "3_600_000",
            "IMAGO__BROKER__DRAIN_SECONDS": "2.5",
        },
    )
    assert config.metaq.enabled is False
    assert config.metaq.topic_patterns == ("a*", "b")
    assert config.store.retention_ms == 3_600_000
    assert config.broker.drain_seconds == 2.5


def test_overrides_win_and_may_declare_topics() -> None:
    tree: dict[str, object] = {"metaq": {"port": 1}}
    with_overrides(tree, ["metaq.port=3", "topics.a.b.queues=4", "topics.a.b.metaq_stat=true"])
    config = from_tree(tree)
    assert config.metaq.port == 3
    assert config.topics == {"a.b": {"queues": 4, "metaq_stat": True}}


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("[metaq]\nprot = 1", {}, r"metaq\.prot: no such key; did you mean metaq\.port"),
        ("[metaqq]", {}, "metaqq: no such section; did you mean metaq"),
        ("metaq = 1", {}, "metaq: must be a section"),
        ("[metaq]\nport = 'x'", {}, r"metaq\.port: 'x', must be a number"),
        ("[metaq]\nport = true", {}, r"metaq\.port: True, must be a number"),
        ("[metaq]\nport = 65536", {}, r"metaq\.port: 65536, must be at most 65535"),
        ("[metaq]\ntopic_patterns = [1]", {}, "must be a list of texts"),
        ("[acknowledgement]\nlevel = 'all'", {}, "must be one of leader, leader-fsync"),
        ("[broker]\nshard = 1\n[metaq]\nbroker_id_base = 1023", {}, "at most 1023"),
        ("[topics]\na = 1", {}, r"topics\.a: must be a table"),
        ("[topics.a]\nx = []", {}, r"topics\.a\.x"),
        ("[", {}, "is not TOML"),
        ("", {"IMAGO__METAQ__PROT": "1"}, r"did you mean metaq\.port"),
        ("", {"IMAGO__METAQ__PORT": "x"}, "IMAGO__METAQ__PORT: 'x', must be a number"),
        ("", {"IMAGO__METAQ__ENABLED": "1"}, "must be true or false"),
        ("", {"IMAGO__METAQ": "1"}, "write IMAGO__SECTION__KEY"),
        ("", {"IMAGO__NOPE__KEY": "1"}, "no such section"),
    ],
)
def test_mistake_is_named(text: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(text, environ)


@pytest.mark.parametrize("assignment", ["metaq.port", "port=1", "=1", "metaq.=1", ".port=1"])
def test_override_without_its_form_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError, match=r"write section\.key=value"):
        with_overrides({}, [assignment])


def test_configuration_survives_its_tree() -> None:
    config = load("[metaq]\nport = 7\ntopic_patterns = ['a', 'b*']\n[topics.t]\nqueues = 2\n")
    assert from_tree(to_tree(config)) == config


def test_every_key_is_documented() -> None:
    keys = describe()
    assert len({key.key for key in keys}) == len(keys)
    for key in keys:
        assert len(key.doc) > 5, key.key
        assert key.type in ("boolean", "number", "text", "list of texts")
    assert any(key.dynamic for key in keys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[store]\nsegment_bytes_max = 4194304\n",
            r"rocketmq\.message_bytes_max: 4194304, does not fit into a file of the log",
        ),
        (
            "[store]\nsegment_bytes_max = 1048576\n[rocketmq]\nmessage_bytes_max = 65536\n",
            r"metaq\.message_bytes_max: 2097152, does not fit into a file of the log",
        ),
        ("[admin]\nport = 8123", r"admin\.port: 8123 is also metaq\.port"),
        ("[admin]\nport = 10909", r"admin\.port: 10909 is also rocketmq\.port - 2"),
        ("[namesrv]\nport = 5\n[rocketmq]\nfast_port = 5", r"namesrv\.port: 5 is also rocketmq"),
        ("[admin]\nport = 8123\nbind = '127.0.0.1'", r"admin\.port: 8123 is also metaq\.port"),
        (
            "[broker]\nhost = 'mq-1.example'",
            r"broker\.bind: 127\.0\.0\.1, is not where broker\.host = mq-1\.example is",
        ),
        ("[broker]\nhost = '10.0.0.9'\nbind = '::1'", r"broker\.bind: ::1, is not where"),
        ("[broker]\nreplicas = 3", r"broker\.replicas: 3, needs a registry: set zookeeper\.con"),
        (
            "[broker]\nreplicas = 2\n[admin]\nport = 10912\n[zookeeper]\nconnect = 'z:1'",
            r"admin\.port: 10912 is also replication\.port",
        ),
        ("[replication]\nmin_in_sync = 2", r"min_in_sync: 2, must be at most broker\.replicas = 1"),
        (
            "[broker]\nreplicas = 3\n[replication]\nmin_in_sync = 1\n[zookeeper]\nconnect = 'z:1'",
            r"min_in_sync: 1, would let one copy stand for replicated: set 2, or",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(text)


def test_largest_message_that_a_file_of_the_log_holds_is_allowed() -> None:
    size = 1 << 20
    config = load(
        f"[store]\nsegment_bytes_max = {size + RECORD_BYTES_AROUND_BODY}\n"
        f"[rocketmq]\nmessage_bytes_max = {size}\n[metaq]\nmessage_bytes_max = {size}\n"
    )
    with pytest.raises(ValueError, match=r"rocketmq\.message_bytes_max: 1048577"):
        replace(config, rocketmq=replace(config.rocketmq, message_bytes_max=size + 1))


@pytest.mark.parametrize(
    "text",
    [
        "[admin]\nport = 8123\n[metaq]\nenabled = false",
        "[admin]\nport = 8123\nbind = '127.0.0.1'\n[broker]\nbind = '127.0.0.2'",
        "[admin]\nport = 0\n[metaq]\nport = 0",
    ],
)
def test_ports_that_do_not_meet_are_allowed(text: str) -> None:
    load(text)


@pytest.mark.parametrize(
    ("text", "level", "least"),
    [
        ("", "leader", 1),
        ("[broker]\nreplicas = 3", "replicated", 2),
        ("[broker]\nreplicas = 3\n[acknowledgement]\nlevel = 'leader'", "leader", 2),
        (
            "[broker]\nreplicas = 3\n[acknowledgement]\nlevel = 'leader'"
            "\n[replication]\nmin_in_sync = 1",
            "leader",
            1,
        ),
        ("[broker]\nreplicas = 3\n[replication]\nmin_in_sync = 3", "replicated", 3),
    ],
)
def test_level_and_least_members_follow_the_replicas(text: str, level: str, least: int) -> None:
    config = load(text + "\n[zookeeper]\nconnect = 'z:1'")
    assert config.acknowledgement_level == level
    assert config.min_in_sync == least


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("", 10912),
        ("[rocketmq]\nport = 5", 6),
        ("[rocketmq]\nport = 0", 0),
        ("[replication]\nport = 7", 7),
    ],
)
def test_replication_port_stands_beside_rocketmqs(text: str, port: int) -> None:
    assert load(text).replication_port == port
