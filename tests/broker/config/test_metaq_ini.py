"""MetaQ's server.ini: read as the original reads it, shown as its tools expect it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from imago_broker.config import ConfigError, load
from imago_broker.config.loading import describe
from imago_broker.config.metaq.metaq_expression import evaluate, integer, truth
from imago_broker.config.metaq.metaq_file import REQUIRED
from imago_broker.config.metaq.metaq_ini import convert
from imago_broker.config.metaq.metaq_keys import SYSTEM, TOPIC, ZOOKEEPER, KeyEffect, table
from imago_broker.config.metaq.metaq_render import render

ROOT = Path(__file__).parents[3]
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
group.g1=tags: red || blue
"""

SHIPPED = """\
[system]
brokerId=0
numPartitions=1
serverPort=8123
dashboardHttpPort=8120
unflushThreshold=0
unflushInterval=10000
maxSegmentSize=1073741824
maxTransferSize=1048576
deletePolicy=delete,168
deleteWhen=0 0 6,18 * * ?
flushTxLogAtCommit=1
stat=true
updateConsumerOffsets=true
[zookeeper]
zk.zkConnect=localhost:2181
zk.zkSessionTimeoutMs=30000
zk.zkConnectionTimeoutMs=30000
zk.zkSyncTimeMs=5000
[topic=test]
[topic=meta-test]
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
    assert config.store.delete_when == "0 0 6,18 * * ?"
    assert config.store.sync_interval_ms == 10_000
    assert config.zookeeper.connect_timeout_ms == 30_000
    assert config.metaq.stop_linger_ms == 5000
    assert config.topics == {
        "test": {"queues": 1},
        "a.b*": {"queues": 1},
        "meta-test": {
            "queues": 20,
            "retention_ms": 1_800_000,
            "acknowledgement": "leader",
            "metaq_publish": False,
            "metaq_stat": True,
            "group.g1": "tags: red || blue",
        },
    }


def test_one_log_for_all_topics_is_said() -> None:
    assert "168 hours" in "\n".join(convert(SAMPLE).notes)


def test_archiving_and_a_disabled_registry_are_said() -> None:
    text = changed(
        **{"deletePolicy": "deletePolicy=archive,24,true", "zk.zkEnable": "zk.zkEnable=false"}
    )
    conversion = convert(text)
    assert tomllib.loads(conversion.toml)["zookeeper"]["connect"] == "none"
    topics = tomllib.loads(conversion.toml)["topics"]
    assert topics["test"]["metaq_archive"] == "zip"
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
        (changed(brokerId="brokerId=2000"), "line 3: brokerId: 2000, must be at most 1023"),
        (changed(serverPort="serverPort=99999"), "line 5: serverPort: 99999, must be at most"),
        (changed(deleteWhen="deleteWhen=0 0 25 * * ?"), "line 12: deleteWhen: .*hour: '25'"),
        (changed(deleteWhen="dataLogPath=/tx"), "line 12: dataLogPath: /tx, but one log"),
        (changed(deleteWhen="appClassPath=/jars"), "line 12: appClassPath: Java classes do not"),
        (changed(deleteWhen="putProcessThreadCount=0"), "line 12: .*: 0, must be at least 1"),
        (changed(deleteWhen="checkpointInterval=999"), "line 12: .*: 999, must be at least 1000"),
        (changed(deleteWhen="brokerId=1"), "line 12: brokerId: is on line 3 already"),
        (changed(deleteWhen="slaveConfig=1"), "line 12: slaveConfig: MetaQ takes this key and"),
        (changed(flushTxLogAtCommit="flushTxLogAtCommit=3"), "line 13: .*: 3, must be at most 2"),
        (SAMPLE.replace("tags: red || blue", "a.b.Filter"), "line 33: group.g1: .*do not run here"),
        (SAMPLE + "dataPath=/elsewhere\n", "line 34: dataPath: /elsewhere, but one log"),
        (SAMPLE + "numPartitions=0\n", "line 34: numPartitions: is on line 28 already"),
        (SAMPLE + "[topic=new]\nnumPartitions=0\n", "line 35: numPartitions: 0, must be at least"),
        (SAMPLE + "[topic=a/../b]\n", "line 34: 'a/../b': a topic's name consists"),
        (SAMPLE + "[topic=test]\n", r"line 34: \[topic=test\]: is on line 25 already"),
        (
            SAMPLE.replace("zk.zkEnable=true", "brokerId=1"),
            r"line 19: brokerId: belongs into \[system\]",
        ),
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
    assert again.store.delete_when == config.store.delete_when
    assert again.topics["meta-test"]["queues"] == 20
    assert again.topics["meta-test"]["group.g1"] == "tags: red || blue"
    assert again.topics["meta-test"]["metaq_publish"] is False


def test_the_smallest_interval_of_the_file_is_that_of_the_one_log() -> None:
    text = SAMPLE + "unflushInterval=30*10\n[topic=other]\nunflushInterval=0\n"
    assert load(convert(text).toml).store.sync_interval_ms == 300


def test_every_key_is_shown_with_what_it_does() -> None:
    rows = table()
    for key in (*REQUIRED, "appClassPath", "zk.zkSyncTimeMs", "deleteWhen", "group.<group>"):
        assert f"`{key}` |" in rows
    assert len(rows.splitlines()) == 2 + len(SYSTEM) + len(ZOOKEEPER) + len(TOPIC)


TRIED = ("7", "2200000", "false", "10.1.2.3", "/elsewhere", "archive,5", "0 0 3 * * ?")
"""Of these each key takes one that is not what the file has."""
BY_ANOTHER = "flushTxLogAtCommit"
"""Ends of transactions are as safe as puts: `unflushThreshold` says how."""


@pytest.mark.parametrize(
    "key",
    [
        key.name
        for key in SYSTEM
        if key.effect in (KeyEffect.KEPT, KeyEffect.NEAREST) and key.name != BY_ANOTHER
    ],
)
def test_no_key_of_the_system_is_read_without_effect(key: str) -> None:
    lines = [line for line in SHIPPED.splitlines() if not line.startswith(f"{key}=")]
    shipped, changed = convert(SHIPPED).toml, set()
    for value in TRIED:
        try:
            changed.add(convert("\n".join([lines[0], f"{key}={value}", *lines[1:]])).toml)
        except ConfigError:
            continue
    assert changed - {shipped}


def test_the_file_that_is_shipped_with_metaq_is_taken() -> None:
    load(convert(SHIPPED).toml)


def test_the_smallest_file_of_the_page_is_the_smallest() -> None:
    page = (ROOT / "docs" / "metaq.md").read_text()
    smallest = page.partition("```ini\n")[2].partition("```")[0]
    convert(smallest, "server.ini")
    lines = [line for line in smallest.splitlines() if "=" in line and "[" not in line]
    for line in lines:
        kept = smallest.replace(line, "")
        if line.startswith("zk."):
            kept = kept.replace("[zookeeper]", "")
        with pytest.raises(ConfigError):
            convert(kept, "server.ini")
    with pytest.raises(
        ConfigError, match=r"Blank value for brokerId, numPartitions, .*set them in"
    ):
        convert("[system]\n[zookeeper]\nzk.zkEnable=false\n[topic=t]\n", "server.ini")


def test_what_takes_effect_at_a_reload_is_what_may_change_while_a_broker_runs() -> None:
    dynamic = {key.key: key.dynamic for key in describe()}
    for key in (*SYSTEM, *ZOOKEEPER):
        if key.setting in dynamic:
            assert key.reload == dynamic[key.setting], key.name
