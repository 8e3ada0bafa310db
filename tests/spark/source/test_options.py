"""Options of the data source: texts in, a checked value out."""

from __future__ import annotations

import pytest

from imago_client.message_queue import MessageQueue
from imago_spark.broker import client_config
from imago_spark.errors import OptionError
from imago_spark.options import FencedRun, OnDataLoss, parse_options
from imago_spark.schema import ALL, CORE, DEFAULT, RowShape
from imago_spark.sink_options import parse_sink_options

GIVEN = {"bootstrap": "a:1,b:2", "subscribe": "orders, events"}


def test_options_have_the_defaults_that_are_documented() -> None:
    options = parse_options(GIVEN)
    assert (options.bootstrap, options.topics) == (("a:1", "b:2"), ("orders", "events"))
    assert (options.starting_offsets, options.ending_offsets) == (None, None)
    assert (options.max_offsets_per_trigger, options.fetch_bytes) == (None, (2 << 20) - (64 << 10))
    assert (options.columns, options.on_data_loss) == (DEFAULT, OnDataLoss.FAIL)


def test_names_may_be_in_any_case_as_spark_hands_them_over() -> None:
    options = parse_options(
        {
            **GIVEN,
            "STARTINGOFFSETS": "earliest",
            "maxoffsetspertrigger": "10",
            "Columns": "Properties",
            "onDataLoss": "SKIP",
            "fetchBytes": "65536",
        }
    )
    assert (options.starting_offsets, options.max_offsets_per_trigger) == ("earliest", 10)
    assert (options.columns, options.on_data_loss) == (ALL, OnDataLoss.SKIP)
    assert options.fetch_bytes == 65536


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("default", DEFAULT),
        ("core", CORE),
        ("all", ALL),
        ("crc_ok,offset", ("crc_ok", "offset")),
        ("properties", ALL),
        ("offset", ("offset",)),
        (" Value , offset,value", ("value", "offset")),
        ("offset,properties", ("offset", "properties")),
        ("default,tags,key", (*DEFAULT, "tags")),
    ],
)
def test_columns_are_named_one_by_one_or_by_sets(text: str, chosen: tuple[str, ...]) -> None:
    assert parse_options({**GIVEN, "columns": text}).columns == chosen


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("body_cr", "'body_cr' is no column; did you mean 'body_crc'"),
        ("xyzzy", "there are topic, shard.*sets default, core, all"),
        (" , ", "names no column"),
    ],
)
def test_column_that_there_is_not_is_told_with_the_nearest(text: str, told: str) -> None:
    with pytest.raises(OptionError, match=f"option 'columns': .*{told}"):
        parse_options({**GIVEN, "columns": text})


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, "key value topic partition offset timestamp timestampType"),
        ({"columns": "VALUE,timestamptype"}, "value timestampType"),
        (
            {"includeHeaders": "true"},
            "key value topic partition offset timestamp timestampType headers",
        ),
        ({"columns": "headers,offset", "includeHeaders": "true"}, "headers offset"),
    ],
)
def test_columns_may_be_those_of_sparks_kafka_source(given: dict[str, str], chosen: str) -> None:
    options = parse_options({**GIVEN, "schema": "Kafka", **given})
    assert (options.shape, options.columns) == (RowShape.KAFKA, tuple(chosen.split()))


def test_queues_can_be_assigned_and_topics_matched() -> None:
    assigned = parse_options({"bootstrap": "a:1", "assign": '{"t": {"s": [1, 0]}}'})
    assert assigned.assigned == (MessageQueue("t", "s", 0), MessageQueue("t", "s", 1))
    matched = parse_options(
        {"bootstrap": "a:1", "subscribePattern": "t.*", "includeSystem": "TRUE"}
    )
    assert (matched.pattern, matched.include_system) == ("t.*", True)
    assert (matched.split_bytes, matched.partitions_min) == (128 << 20, 1)


@pytest.mark.parametrize(
    ("text", "policy"), [("false", OnDataLoss.SKIP), ("true", OnDataLoss.FAIL)]
)
def test_kafkas_name_for_data_loss_is_understood(text: str, policy: OnDataLoss) -> None:
    assert parse_options({**GIVEN, "failOnDataLoss": text}).on_data_loss is policy


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subscribe": "orders"}, "'bootstrap' is missing"),
        ({"bootstrap": "a:1"}, "'subscribe' is missing"),
        ({**GIVEN, "subscribes": "x"}, "did you mean 'subscribe'"),
        ({**GIVEN, "kafka.bootstrap.servers": "x"}, "did you mean 'bootstrap'"),
        ({**GIVEN, "startingOffset": "x"}, "did you mean 'startingOffsets'"),
        ({**GIVEN, "zzz": "x"}, "known are bootstrap"),
        ({**GIVEN, "bootstrap": "nowhere"}, "is not host:port"),
        ({**GIVEN, "subscribe": " , "}, "names no topic"),
        ({**GIVEN, "subscribe": "no spaces"}, "only letters"),
        ({**GIVEN, "maxOffsetsPerTrigger": "0"}, "not a number above 0"),
        ({**GIVEN, "fetchBytes": "1"}, "must be 65536 to 4194304"),
        ({**GIVEN, "onDataLoss": "hope"}, "must be fail or skip"),
        ({**GIVEN, "failOnDataLoss": "nope"}, "must be true or false"),
        ({**GIVEN, "failOnDataLoss": "true", "onDataLoss": "skip"}, "disagree"),
        ({**GIVEN, "timeout": "never"}, "timeout"),
        ({**GIVEN, "timeout": "0"}, "seconds up to 3600"),
        ({**GIVEN, "subscribePattern": "x"}, "subscribe and subscribePattern: only one"),
        ({"bootstrap": "a:1", "assign": "[]"}, "must look like"),
        ({"bootstrap": "a:1", "assign": "{}"}, "names no queue"),
        ({"bootstrap": "a:1", "assign": '{"t": {"s": [0.7]}}'}, "must look like"),
        ({"bootstrap": "a:1", "assign": '{"t": {"s": [true]}}'}, "must look like"),
        ({"bootstrap": "a:1", "assign": '{"t": {"s": "01"}}'}, "must look like"),
        ({"bootstrap": "a:1", "assign": '{"t": {"s": [0], "s": [1]}}'}, "must look like"),
        ({"bootstrap": "a:1", "assign": '{"t": {"s": [-1]}}'}, "no number of a queue"),
        ({"bootstrap": "a:1", "subscribe": "t", "maxTriggerDelay": "15"}, "no time like 30s"),
        ({"bootstrap": "a:1", "subscribe": "t", "maxTriggerDelay": "0s"}, "no time like 30s"),
        ({"bootstrap": "a:1", "subscribe": "t", "maxBytesPerTrigger": "0"}, "above 0"),
        ({"bootstrap": "a:1", "subscribe": "t", "pushFilters": "yes"}, "true or false"),
        ({"bootstrap": "a:1", "subscribePattern": "("}, "no regular expression"),
        ({**GIVEN, "includeSystem": "maybe"}, "must be true or false"),
        ({**GIVEN, "splitBytes": "1"}, "must be 65536 or more"),
        ({**GIVEN, "minPartitions": "0"}, "not a number above 0"),
        ({**GIVEN, "schema": "pulsar"}, "must be imago or kafka"),
        ({**GIVEN, "schema": "kafka", "columns": "queue"}, "'queue' is no column; .* value, topic"),
        ({**GIVEN, "includeHeaders": "true"}, 'is of .option\\("schema", "kafka"\\)'),
    ],
)
def test_wrong_options_are_named_with_what_would_be_right(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse_options(given)


def test_run_of_a_pipeline_comes_by_options_or_by_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    least = {"bootstrap": "b:9876", "subscribe": "t"}
    assert parse_options(least).run is None
    assert parse_options({**least, "pipeline": "lake.t", "EPOCH": "3"}).run == FencedRun(
        "lake.t", 3
    )
    monkeypatch.setenv("IMAGO_PIPELINE", "lake.u")
    monkeypatch.setenv("IMAGO_EPOCH", "4")
    assert parse_options(least).run == FencedRun("lake.u", 4)
    assert parse_sink_options({"bootstrap": "b:9876"}).run == FencedRun("lake.u", 4)
    monkeypatch.delenv("IMAGO_EPOCH")
    with pytest.raises(OptionError, match="give both"):
        parse_options(least)
    assert parse_options({**least, "epoch": "0"}).run == FencedRun("lake.u", 0)
    with pytest.raises(OptionError, match="'epoch': '-1' is not a number of 0 or more"):
        parse_options({**least, "epoch": "-1"})


def test_tls_comes_from_options_or_the_drivers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = parse_options(GIVEN)
    assert (plain.tls_ca_file, plain.tls_certificate_file, plain.tls_key_file) == (None, None, None)
    monkeypatch.setenv("IMAGO_TLS_CA", "env.pem")
    assert parse_options(GIVEN).tls_ca_file == "env.pem"
    own = {"tlsCaFile": "own.pem", "tlsCertificateFile": "me.pem", "tlsKeyFile": "me.key"}
    for parse, given in ((parse_options, GIVEN), (parse_sink_options, {"bootstrap": "a:1"})):
        found = parse({**given, **own})
        assert found.tls_ca_file == "own.pem"
        assert (found.tls_certificate_file, found.tls_key_file) == ("me.pem", "me.key")
    with pytest.raises(OptionError, match="give both"):
        parse_options({**GIVEN, "tlsKeyFile": "me.key"})
    monkeypatch.delenv("IMAGO_TLS_CA")
    with pytest.raises(OptionError, match="give tlsCaFile"):
        parse_options({**GIVEN, "tlsCertificateFile": "me.pem", "tlsKeyFile": "me.key"})


def test_the_user_comes_from_options_or_the_drivers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (parse_options(GIVEN).user, parse_options(GIVEN).password_file) == (None, None)
    monkeypatch.setenv("IMAGO_USER", "ann")
    monkeypatch.setenv("IMAGO_PASSWORD_FILE", "/run/ann")
    own = {"user": "bob", "PASSWORDFILE": "/run/bob"}
    for parse, given in ((parse_options, GIVEN), (parse_sink_options, {"bootstrap": "a:1"})):
        found = parse(given)
        assert (found.user, found.password_file) == ("ann", "/run/ann")
        found = parse({**given, **own})
        assert (found.user, found.password_file) == ("bob", "/run/bob")
        config = client_config(found)
        assert (config.user, config.password_file) == ("bob", "/run/bob")
        with pytest.raises(OptionError, match="user and passwordFile"):
            parse({**given, "user": "bob"})  # whose password the environment has not


@pytest.mark.parametrize("option", ["password", "secretKey", "tlsKey"])
def test_secrets_are_no_options(option: str) -> None:
    for parse, given in ((parse_options, GIVEN), (parse_sink_options, {"bootstrap": "a:1"})):
        with pytest.raises(OptionError, match="the name of a file") as refused:
            parse({**given, option: "mark-of-a-secret"})
        assert "mark-of-a-secret" not in str(refused.value)
