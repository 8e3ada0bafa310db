"""Bodies: every class from values to JSON and back, and what odd clients write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import classes_below, languages, longs, texts
from imago_wire.remoting import bodies
from imago_wire.remoting.bodies.client import (
    CheckClientRequestBody,
    Connection,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    MessageModel,
    MessageQueue,
)
from imago_wire.remoting.bodies.config import (
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigAndQueueMapping,
)
from imago_wire.remoting.bodies.fields import Body, BodyError
from imago_wire.remoting.bodies.route import ClusterInfo, TopicList
from imago_wire.remoting.bodies.stats import (
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    MessageQueueForC,
    OffsetWrapper,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    TopicOffset,
    TopicStatsTable,
)
from imago_wire.remoting.fields import wire_name
from imago_wire.remoting.peer import Language

CLASSES = classes_below(bodies, Body)

plain = st.none() | st.booleans() | longs | texts
json_values = plain | st.lists(plain, max_size=2) | st.dictionaries(texts, plain, max_size=2)
doubles = st.floats(allow_nan=False, allow_infinity=False)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: longs,
    bool: st.booleans(),
    float: doubles,
    Language: languages,
    # What stays as it was parsed may be anything but null, which means absent.
    Any: json_values.filter(lambda value: value is not None),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values for a field of this type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in SCALARS:
        return SCALARS[hint]
    if origin is tuple:
        return st.lists(values_of(inner[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(values_of(inner[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=2)
    if NoneType in inner:
        return st.none() | values_of(next(one for one in inner if one is not NoneType))
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    return body_values(hint)


def body_values(kind: type[Body]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{spec.name: values_of(hints[spec.name]) for spec in fields(kind)})  # type: ignore[arg-type]  # all are dataclasses


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("standard", [False, True])
def test_body_survives_its_json_form(kind: type[Body], standard: bool) -> None:
    @settings(max_examples=8)
    @given(body_values(kind))
    def check(value: Body) -> None:
        assert kind.decode(value.encode(standard=standard)) == value

    check()


@pytest.mark.parametrize("kind", CLASSES)
def test_body_of_any_json_is_a_value_or_a_body_error(kind: type[Body]) -> None:
    names = [wire_name(spec) for spec in fields(kind)]  # type: ignore[arg-type]  # all are dataclasses
    refused = 0

    @settings(max_examples=10)
    @given(st.dictionaries(st.sampled_from(names), json_values))
    def check(value: dict[str, Any]) -> None:
        nonlocal refused
        try:
            kind.from_json(value)
        except BodyError:
            refused += 1

    check()
    with pytest.raises(BodyError, match=f"{kind.__name__} is not an object"):
        kind.from_json([])


@given(st.binary(max_size=60))
def test_garbage_raises_nothing_but_body_errors(data: bytes) -> None:
    try:
        data_read = HeartbeatData.decode(data)
    except BodyError:
        return
    assert data_read.client_id


QUEUE = MessageQueue("TopicTest", "broker-a", 3)
KNOWN = [
    (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}:1}}',
        ResetOffsetBody(offset_table={QUEUE: 1}),
    ),
    (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":1,"queueId":3,"topic":"TopicTest"}]}',
        ResetOffsetBodyForC(
            offset_table=(
                MessageQueueForC(broker_name="broker-a", offset=1, queue_id=3, topic="TopicTest"),
            )
        ),
    ),
    (
        b'{"offsetTable":{"TopicTest@CG":{0:2,1:4}}}',
        ConsumerOffsetSerializeWrapper(offset_table={"TopicTest@CG": {0: 2, 1: 4}}),
    ),
    (b'{"offsetTable":{1:2,3:3}}', DelayOffsetSerializeWrapper(offset_table={1: 2, 3: 3})),
    (
        b'{"correctionOffsets":{0:0,1:0}}',
        QueryCorrectionOffsetBody(correction_offsets={0: 0, 1: 0}),
    ),
    (
        b'{"consumerIdList":["192.168.1.20@4711#1","192.168.1.21@923"]}',
        GetConsumerListByGroupResponseBody(
            consumer_id_list=("192.168.1.20@4711#1", "192.168.1.21@923")
        ),
    ),
    (
        b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}:7}}',
        GetConsumerStatusBody(message_queue_table={QUEUE: 7}),
    ),
    (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"TopicTest"}:'
        b'{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":2}},"topicPutTps":0.0}',
        TopicStatsTable(
            offset_table={
                QUEUE: TopicOffset(last_update_timestamp=5, max_offset=9, min_offset=2)
            },
            topic_put_tps=0.0,
        ),
    ),
    (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":3,'
        b'"topic":"TopicTest"}:{"brokerOffset":9,"consumerOffset":2,"lastTimestamp":5}}}',
        ConsumeStats(
            offset_table={
                QUEUE: OffsetWrapper(broker_offset=9, consumer_offset=2, last_timestamp=5)
            }
        ),
    ),
    (
        b'{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":4}',
        TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4),
    ),
    (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":4,'
        b'"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}',
        TopicConfigAndQueueMapping(
            topic_name="T", read_queue_nums=4, write_queue_nums=4, attributes={}
        ),
    ),
    (
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"groupName":"CG","notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}',
        SubscriptionGroupConfig(group_name="CG"),
    ),
    (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"spentTimeMills":3}',
        ConsumeMessageDirectlyResult(consume_result=ConsumeResult.CR_LATER, spent_time_mills=3),
    ),
    (
        b'{"clientAddr":"1.2.3.4:5","clientId":"c","language":"JAVA","version":409}',
        Connection(client_addr="1.2.3.4:5", client_id="c", language=Language.JAVA, version=409),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), KNOWN)
def test_known_text_is_read_and_written(text: bytes, value: Body) -> None:
    assert type(value).decode(text) == value
    assert value.encode() == text


def test_cluster_keeps_bare_ids() -> None:
    text = (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"a:1"},"brokerName":"broker-a",'
        b'"cluster":"C"}},"clusterAddrTable":{"C":["broker-a"]}}'
    )
    assert ClusterInfo.decode(text).encode() == text


def test_heartbeat_of_a_cpp_client_has_numbers_for_words() -> None:
    text = (
        b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":'
        b'"G","messageModel":1,"subscriptionDataSet":[{"codeSet":["2598919"],"subString":"TagA",'
        b'"subVersion":"1700000000000","tagsSet":["TagA"],"topic":"T"}]}]}\n'
    )
    (consumer,) = HeartbeatData.decode(text).consumer_data_set
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    (subscription,) = consumer.subscription_data_set
    assert subscription.sub_version == 1700000000000
    assert subscription.code_set == {2598919}
    assert subscription.expression_type == "TAG"


def test_standard_form_quotes_what_old_clients_want_bare() -> None:
    body = ResetOffsetBody(offset_table={MessageQueue("Thème", "b", 0): 1})
    text = body.encode(standard=True)
    assert text == (
        b'{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,'
        b'\\"topic\\":\\"Th\\u00e8me\\"}":1}}'
    )
    assert ResetOffsetBody.decode(text) == body


def test_unknown_language_is_left_out() -> None:
    connection = Connection(client_addr="a", client_id="c", version=1)
    assert connection.encode() == b'{"clientAddr":"a","clientId":"c","version":1}'
    text = b'{"clientAddr":"a","clientId":"c","language":"KLINGON","version":1}'
    assert Connection.decode(text) == connection


def test_queues_are_ordered_as_clients_order_them() -> None:
    queues = [MessageQueue("t", "b", 1), MessageQueue("t", "a", 2), MessageQueue("s", "z", 9)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]


def test_running_info_of_a_client_keeps_what_it_does_not_know() -> None:
    text = (
        b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"locked":"1"}},'
        b'"properties":{"PROP_CONSUMEORDERLY":true},"statusTable":{"t":{"pullRT":1.5}}}'
    )
    info = ConsumerRunningInfo.decode(text)
    assert info.mq_table[MessageQueue("t", "b", 0)] == {"locked": "1"}
    assert info.properties == {"PROP_CONSUMEORDERLY": "true"}


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (HeartbeatData, b"{}", "HeartbeatData.clientID is missing"),
        (TopicList, b'{"topicList":"x"}', "TopicList.topicList is wrong: x"),
        (TopicConfig, b'{"topicName":"t","perm":"x"}', "TopicConfig.perm is wrong: x"),
        (TopicConfig, b'{"topicName":"t","perm":1.5}', "TopicConfig.perm is wrong: 1.5"),
        (TopicConfig, b'{"topicName":"t","order":"x"}', "TopicConfig.order is wrong: x"),
        (TopicConfig, b'{"topicName":"t","perm":18446744073709551615}', "perm is wrong"),
        (CheckClientRequestBody, b'{"subscriptionData":[]}', "SubscriptionData is not an object"),
        (ConsumeStats, b'{"offsetTable":{"x":{}}}', "bad JSON"),
        (ConsumeStats, b'{"consumeTps":"NaN"}', "ConsumeStats.consumeTps is wrong: NaN"),
        (ResetOffsetBody, b'{"offsetTable":{"7":1}}', "MessageQueue is not an object"),
    ],
)
def test_wrong_body_names_its_field(kind: type[Body], text: bytes, reason: str) -> None:
    with pytest.raises(BodyError, match=reason):
        kind.decode(text)
