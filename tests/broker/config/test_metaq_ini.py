"""MetaQ's server.ini: read as the original reads it, shown as its tools expect it."""

from __future__ import annotations

import tomllib

import pytest

from imago_broker.config import ConfigError, load
from imago_broker.config.metaq_expression import evaluate, integer, truth
from imago_broker.config.metaq_ini import convert
from imago_broker.config.metaq_render import render

SAMPLE = """\
; a broker as MetaQ ships it
[system]
brokerId=3
numPartitions=1
serverPort=8123
dashboardHttpPort=8120
unflushThreshold=0
unflushInterval=10000
maxSegmentSize=1024*1024*1024
maxTransferSize=1024*1024
deletePolicy=delete,168
deleteWhen=0 0 6,18 * * ?
flushTxLogAtCommit=1
stat=true
updateConsumerOffsets=true

# the registry
[zookeeper]
zk.zkEnable=true
zk.zkConnect=localhost:2181
zk.zkSessionTimeoutMs=30000
zk.zkConnectionTimeoutMs=30000
zk.zkSyncTimeMs=5000

[topic=test]
[topic=a.b*]
[topic=meta-test]
numPartitions=10 * 2
deletePolicy=delete,30m
unflushThreshold=1000
acceptPublish=1>2
stat=TRUE
group.g1=com.example.Filter
"""


def changed(**lines: str) -> str:
    """Return the sample with the lines that start with a key replaced."""
    text = SAMPLE
    for key, line in lines.items():
        text = "\n".join(line if t.startswith(f"{key}=") else t for t in text.splitlines())
    return text


def test_sample_is_translated() -> None:
    conversion = convert(SAMPLE)
    config = load(conversion.toml)
    assert config.metaq_broker_id == 3
    assert config.metaq.port == 8123
    assert config.metaq.default_partitions == 1
    assert config.metaq.transfer_bytes_max == 1 << 20
    assert config.metaq.stat
    assert config.metaq.update_consumer_offsets
    assert config.metaq.topic_patterns == ("a.b*",)
    assert config.store.metaq_segment_bytes_max == 1 << 30
    assert config.store.retention_ms == 168 * 3_600_000
    assert config.acknowledgement.level == "leader-fsync"
    assert config.zookeeper.connect == "localhost:2181"
    assert config.zookeeper.session_timeout_ms == 30_000
    assert config.topics == {
        "test": {"queues": 1},
        "meta-test": {
            "queues": 20,
            "retention_ms": 1_800_000,
            "acknowledgement": "leader",
            "metaq_publish": False,
            "metaq_stat": True,
        },
    }


def test_what_has_no_effect_is_said() -> None:
    notes = "\n".join(convert(SAMPLE).notes)
    for key in ("deleteWhen", "flushTxLogAtCommit", "zk.zkSyncTimeMs", "group.g1"):
        assert f"{key} has no effect" in notes
    assert "168 hours" in notes


def test_archiving_and_a_disabled_registry_are_said() -> None:
    text = changed(
        **{"deletePolicy": "deletePolicy=archive,24,true", "zk.zkEnable": "zk.zkEnable=false"}
    )
    conversion = convert(text)
    assert tomllib.loads(conversion.toml)["zookeeper"]["connect"] == "none"
    assert any("not archived" in note for note in conversion.notes)
    assert any("registers nowhere" in note for note in conversion.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            changed(serverPort="servrPort=1"),
            "Invalid config key:servrPort,do you mean 'serverPort'",
        ),
        (changed(brokerId="brokerId="), "Blank value for brokerId"),
        (changed(maxTransferSize=""), "Blank value for maxTransferSize"),
        (changed(maxTransferSize="maxTransferSize=1024*"), "maxTransferSize: .*no arithmetic"),
        (changed(deletePolicy="deletePolicy=burn,1"), "must look like delete,168"),
        (changed(brokerId="brokerId=2000"), "at most 1023"),
        (changed(stat="stat=17"), "stat: '17', must be true or false"),
        (SAMPLE.split("[topic=test]", maxsplit=1)[0], "at least one topic"),
        (SAMPLE.replace("[zookeeper]", "[zoo]"), r"there are \[system\]"),
        ("brokerId=1", "line 1"),
        (SAMPLE + "nonsense\n", "neither a section nor key=value"),
    ],
)
def test_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        convert(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024*1024*1024", 1 << 30),
        ("10 * 60", 600),
        ("-3 + 2*(4-1)", 3),
        ("7/2", 3),
        ("7%4", 3),
        ("1 + 2 == 3", True),
        ("1>0 && !(2<1)", True),
        ("false || 1>=2", False),
        ("2.5*2", 5.0),
    ],
)
def test_expression_has_its_value(text: str, value: float) -> None:
    assert evaluate("key", text) == value


@pytest.mark.parametrize(
    "text",
    [
        "", "1+", "(1", "1)", "1 2", "__import__('os')", "1/0", "a", "2**3", "1;2",
        "(" * 50 + "1" + ")" * 50, "-" * 50 + "1", "9" * 300,
    ],
)  # fmt: skip
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="key"):
        evaluate("key", text)


def test_numbers_are_cut_as_java_cuts_them() -> None:
    assert integer("k", "2147483648") == -2147483648
    assert integer("k", "4294967296+5") == 5
    assert integer("k", "4294967296", bits=64) == 4294967296
    assert truth("k", "1>0")


def test_rendered_file_can_be_converted_back() -> None:
    config = load(convert(SAMPLE).toml)
    again = load(convert(render(config, host="10.0.0.1").decode()).toml)
    assert again.metaq_broker_id == config.metaq_broker_id
    assert again.metaq == config.metaq
    assert again.zookeeper == config.zookeeper
    assert again.broker.host == "10.0.0.1"
    assert again.broker.bind == "0.0.0.0", "as the original listens"
    assert again.topics["meta-test"]["queues"] == 20
    assert again.topics["meta-test"]["metaq_publish"] is False
