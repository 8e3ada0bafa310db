"""Every command of mqadmin, of 4.9.8 and 5.5.0: how it is called and what it has to print.

A command that does not apply to Imago says why. It is called all the same where it asks a broker
or the name service, which refuse with code 3 and stay usable.
"""

from __future__ import annotations

from dataclasses import dataclass

BOTH = (4, 5)
OLDER, NEWER = (4,), (5,)


@dataclass(frozen=True, slots=True)
class Command:
    """A command's lines, run one after the other, and parts of what they print.

    Words in braces stand for what a test's rig has: see `test_rocketmq_mqadmin.Rig`. Blanks count
    as one.
    """

    name: str
    lines: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    versions: tuple[int, ...] = BOTH
    why_not: str = ""
    """Why it does not apply; without lines, it is not called either."""
    prints_failure: bool = False
    """Whether what it prints is an exception also where all is well."""


def _served(
    name: str, arguments: str, *shows: str, versions: tuple[int, ...] = BOTH, first: str = ""
) -> Command:
    lines = (*filter(None, (first,)), f"{name} {arguments}".strip())
    return Command(name, lines, shows, versions)


def _refused(
    name: str, arguments: str, code: int, why: str, *, versions: tuple[int, ...] = NEWER
) -> Command:
    shows = (f"request type {code} not supported",)
    return Command(name, (f"{name} {arguments}",), shows, versions, why, prints_failure=True)


_NEW_TOPIC = "updateTopic -c {cluster} -t {new} -r 4 -w 4"
_NEW_STATIC_TOPIC = "updateStaticTopic -t {new} -qn 4 -c {cluster}"
_NEW_USER = "createUser -b {broker} -u {new} -p password"
_NEW_RULE = "createAcl -b {broker} -s User:{new} -r Topic:* -a Pub -i 10.0.0.0/8 -d Allow"
_NEW_GROUP = "updateSubGroup -c {cluster} -g {new}"
_MESSAGE = ("Topic: {topic}", "Keys: [{key}]", "Tags: [tag]")
_CONTROLLER = "shards elect their masters over the registry: there is no controller"
_ROCKSDB = "the store is no RocksDB"
_ENDLESS = "runs until it is killed; its requests are those of {}"
_LOCAL = "reads files of the original's store, and asks nobody"
_LITE = "lite topics are not served"

SERVED = (
    _served("updateTopic", "-c {cluster} -t {new} -r 4 -w 4", "create topic to {broker} success."),
    _served(
        "updateTopicList",
        "-b {broker} -f {topics}",
        "submit batch of topic config to {broker} success",
        versions=NEWER,
    ),
    _served(
        "updateStaticTopic",
        "-t {new} -qn 4 -c {cluster}",
        "The new mapping data is written to file",
        versions=NEWER,
    ),
    _served(
        "remappingStaticTopic",
        "-t {new} -c {cluster}",
        "The new mapping data is written to file",
        versions=NEWER,
        first=_NEW_STATIC_TOPIC,
    ),
    _served(
        "deleteTopic",
        "-c {cluster} -t {new}",
        "delete topic [{new}] from NameServer success.",
        first=_NEW_TOPIC,
    ),
    _served(
        "updateTopicPerm",
        "-b {broker} -t {second} -p 4",
        "update topic perm from 6 to 4 in {broker} success.",
    ),
    _served("topicRoute", "-t {topic}", '"brokerName":"{name}"', '"readQueueNums":4'),
    _served("topicStatus", "-t {topic}", "{name} 0 0 ", "{name} 3 0 "),
    _served("topicClusterList", "-t {topic}", "{cluster}"),
    _served("topicList", "-c", "{cluster} {topic} {group}"),
    _served(
        "updateOrderConf",
        "-m get -t {topic}",
        "update orderConf success. topic=[{topic}]",
        "get orderConf success. topic=[{topic}], orderConf=[{name}:4]",
        first="updateOrderConf -m put -t {topic} -v {name}:4",
    ),
    _served("allocateMQ", "-t {topic} -i 10.0.0.1,10.0.0.2", '"10.0.0.1":[{{', '"10.0.0.2":[{{'),
    _served(
        "updateSubGroup", "-c {cluster} -g {new}", "create subscription group to {broker} success."
    ),
    _served(
        "updateSubGroupList",
        "-b {broker} -f {groups}",
        "submit batch of group config to {broker} success",
        versions=NEWER,
    ),
    _served(
        "setConsumeMode",
        "-b {broker} -t {topic} -g {group} -m PULL -q 2",
        "set consume mode to {broker} success.",
        versions=NEWER,
    ),
    _served(
        "deleteSubGroup",
        "-c {cluster} -g {new}",
        "delete subscription group [{new}] from broker [{broker}]",
        first=_NEW_GROUP,
    ),
    _served("getConsumerConfig", "-g {group}", "groupName = {group}", "retryMaxTimes = 16"),
    _served(
        "updateBrokerConfig",
        "-b {broker} -k defaultQueryMaxNum -v 32",
        "update broker config success, {broker}",
    ),
    _served("getBrokerConfig", "-b {broker}", "defaultQueryMaxNum = 32", "brokerName = {name}"),
    _served("getNamesrvConfig", "", "orderMessageEnable = "),
    _served(
        "updateNamesrvConfig",
        "-k orderMessageEnable -v false",
        "update name server config success!",
    ),
    _served(
        "updateKvConfig",
        "-s spaces -k key -v value",
        "create or update kv config to namespace success.",
    ),
    _served("deleteKvConfig", "-s spaces -k key", "delete kv config from namespace success."),
    _served(
        "wipeWritePerm",
        "-b {name}",
        "wipe write perm of broker[{name}] in name server[{namesrv}] OK, ",
    ),
    _served(
        "addWritePerm",
        "-b {name}",
        "add write perm of broker[{name}] in name server[{namesrv}] OK, ",
    ),
    _served("clusterList", "", "{cluster} {name} 0 {broker}"),
    _served("brokerStatus", "-b {broker}", "putTps :", "commitLogMaxOffset :"),
    _served("brokerConsumeStats", "-b {at_broker}", "{topic} {group} {at} ", "Diff Total: "),
    _served("cleanExpiredCQ", "-c {cluster}", "success"),
    _served("cleanUnusedTopic", "-c {cluster}", "success"),
    _served("deleteExpiredCommitLog", "-c {cluster}", "success"),
    _served(
        "haStatus",
        "-b {broker}",
        "#MasterAddr {broker}",
        "#SlaveNum 0",
        "#InSyncSlaveNum 0",
        versions=NEWER,
    ),
    _served(
        "resetMasterFlushOffset",
        "-b {broker} -o 0",
        "reset master flush offset to 0 success",
        versions=NEWER,
    ),
    _served(
        "updateColdDataFlowCtrGroupConfig",
        "-b {broker} -g {group} -v 1024",
        "updateColdDataFlowCtrGroupConfig success, {broker}",
        versions=NEWER,
    ),
    _served(
        "getColdDataFlowCtrInfo",
        "-b {broker}",
        '"cgColdReadThreshold":3145728',
        '"configTable":',
        versions=NEWER,
    ),
    _served(
        "removeColdDataFlowCtrGroupConfig",
        "-b {broker} -g {group}",
        "remove broker cold read threshold success, {broker}",
        versions=NEWER,
    ),
    _served(
        "setCommitLogReadAheadMode",
        "-b {broker} -m 0",
        "set commitlog readahead mode success, mode: 0",
        versions=NEWER,
    ),
    _served("sendMessage", "-t {topic} -p hello -k other", "SEND_OK"),
    _served("checkMsgSendRT", "-t {topic} -a 3 -s 10", "true", "Avg RT:"),
    _served("sendMsgStatus", "-b {name} -s 10 -c 2", "sendStatus=SEND_OK"),
    _served("consumeMessage", "-t {topic}", "Consume ok", "MSGID: {id}"),
    _served("printMsg", "-t {topic}", "MSGID: {id}"),
    _served("printMsgByQueue", "-t {topic} -a {at} -i {queue} -p true", "MSGID: {id}"),
    _served("queryMsgById", "-i {offset_id}", *_MESSAGE, versions=OLDER),
    _served("queryMsgById", "-i {offset_id} -t {topic}", *_MESSAGE, versions=NEWER),
    _served("queryMsgByKey", "-t {topic} -k {key}", "{id} {queue} {offset}"),
    _served("queryMsgByUniqueKey", "-t {topic} -i {id}", *_MESSAGE),
    _served("queryMsgByOffset", "-t {topic} -b {at} -i {queue} -o {offset}", *_MESSAGE),
    Command(
        "queryMsgTraceById",
        ("queryMsgTraceById -t {topic} -i {unknown_id}",),
        ("CODE: 208", "no message"),
        prints_failure=True,
    ),
    _served(
        "queryCq",
        "-t {topic} -q {queue} -i {offset} -c 1 -b {at_broker}",
        "idx: {offset}",
        "ConsumeQueueData{{physicOffset=",
    ),
    _served("producerConnection", "-g {producers} -t {topic}", "JAVA"),
    _served("producer", "-b {at_broker}", "producer group ({producers}) instance : "),
    _served(
        "consumerConnection",
        "-g {group}",
        "{topic} *",
        "ConsumeType: CONSUME_PASSIVELY",
        "MessageModel: CLUSTERING",
    ),
    _served(
        "consumerStatus",
        "-g {group}",
        "Same subscription in the same group of consumer",
        "Rebalance OK",
    ),
    _served("consumerProgress", "-g {group}", "{topic} {name} 0 ", "Diff Total:", "Consume TPS:"),
    _served("statsAll", "-t {topic}", "{topic} {group} "),
    _served(
        "cloneGroupOffset",
        "-s {group} -d {new} -t {topic} -o true",
        "clone group offset success. srcGroup[{group}], destGroup=[{new}], topic[{topic}]",
        first=_NEW_GROUP,
    ),
    _served("resetOffsetByTime", "-g {group} -t {topic} -s now", "{name} 0 "),
    _served("skipAccumulatedMessage", "-g {group} -t {topic}", "{name} 0 "),
    _served("exportMetadata", "-c {cluster} -f {folder}", "export {folder}/metadata.json success"),
    _served("exportConfigs", "-c {cluster} -f {folder}", "export {folder}/configs.json success"),
    _served("exportMetrics", "-c {cluster} -f {folder}", "export {folder}/metrics.json success"),
    _served(
        "createUser",
        "-b {broker} -u {new} -p password",
        "create user to {broker} success.",
        versions=NEWER,
    ),
    _served(
        "updateUser",
        "-b {broker} -u {new} -p passwords",
        "update user to {broker} success.",
        versions=NEWER,
        first=_NEW_USER,
    ),
    _served(
        "deleteUser",
        "-b {broker} -u {new}",
        "delete user to {broker} success.",
        versions=NEWER,
        first=_NEW_USER,
    ),
    _served(
        "getUser",
        "-b {broker} -u {new}",
        "{new} null Normal enable",
        versions=NEWER,
        first=_NEW_USER,
    ),
    _served(
        "listUser",
        "-b {broker} -f {new}",
        "{new} null Normal enable",
        versions=NEWER,
        first=_NEW_USER,
    ),
    _served(
        "copyUser",
        "-f {broker} -t {broker} -u {new}",
        "copy user of {new} from {broker} to {broker} success.",
        versions=NEWER,
        first=_NEW_USER,
    ),
    _served(
        "createAcl",
        "-b {broker} -s User:{new} -r Topic:* -a Pub -d Allow",
        "create acl to {broker} success.",
        versions=NEWER,
        first=_NEW_USER,
    ),
    _served(
        "updateAcl",
        "-b {broker} -s User:{new} -r Topic:* -a Pub,Sub -i 10.0.0.0/8 -d Deny",
        "update acl to {broker} success.",
        versions=NEWER,
        first=_NEW_USER,
    ),
    Command(
        "deleteAcl",
        (_NEW_USER, _NEW_RULE, "deleteAcl -b {broker} -s User:{new}"),
        ("delete acl to {broker} success.",),
        NEWER,
    ),
    Command(
        "getAcl",
        (_NEW_USER, _NEW_RULE, "getAcl -b {broker} -s User:{new}"),
        ("User:{new} Custom Topic:* [Pub] [10.0.0.0/8] Allow",),
        NEWER,
    ),
    Command(
        "listAcl",
        (_NEW_USER, _NEW_RULE, "listAcl -b {broker} -s User:{new}"),
        ("User:{new} Custom Topic:* [Pub] [10.0.0.0/8] Allow",),
        NEWER,
    ),
    Command(
        "copyAcl",
        (_NEW_USER, _NEW_RULE, "copyAcl -f {broker} -t {broker} -s User:{new}"),
        ("copy acl of User:{new} from {broker} to {broker} success.",),
        NEWER,
    ),
    _served(
        "updateAclConfig",
        "-b {broker} -a {new} -s 12345678 -i PUB|SUB -t a=DENY,b=SUB",
        "create or update plain access config to {broker} success.",
        versions=OLDER,
    ),
    _served(
        "deleteAclConfig",
        "-b {broker} -a {new}",
        "delete plain access config account from {broker} success.",
        versions=OLDER,
        first="updateAclConfig -b {broker} -a {new} -s 12345678",
    ),
    _served(
        "clusterAclConfigVersion",
        "-b {broker}",
        "get broker's plain access config version success.",
        versions=OLDER,
    ),
    _served(
        "updateGlobalWhiteAddr",
        "-b {broker} -g 10.0.0.1",
        "update global white remote addresses to {broker} success.",
        versions=OLDER,
    ),
)

ABOUT_ACCESS = frozenset(
    {
        *("updateAclConfig", "deleteAclConfig", "clusterAclConfigVersion", "updateGlobalWhiteAddr"),
        *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
        *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
    }
)
"""Served by originals only where their access control is on."""

NOT_APPLYING = (
    _refused(
        "addBroker", "-c {broker} -b /none", 902, "a broker is a process: there is no container"
    ),
    _refused(
        "removeBroker",
        "-c {broker} -b {cluster}:{name}:0",
        903,
        "a broker is a process: there is no container",
    ),
    _refused(
        "exportPopRecord",
        "-b {broker}",
        200056,
        "consumers of POP have no records of the original to export",
    ),
    _refused("getSyncStateSet", "-a {namesrv} -b {name}", 1005, _CONTROLLER),
    _refused("getBrokerEpoch", "-b {name}", 1007, _CONTROLLER),
    _refused("getControllerMetaData", "-a {namesrv}", 1005, _CONTROLLER),
    _refused("getControllerConfig", "-a {namesrv}", 1010, _CONTROLLER),
    _refused("updateControllerConfig", "-a {namesrv} -k a -v b", 1009, _CONTROLLER),
    _refused("cleanBrokerMetadata", "-a {namesrv} -b 1 -bn {name} -c {cluster}", 1005, _CONTROLLER),
    _refused("electMaster", "-a {namesrv} -b 0 -bn {name} -c {cluster}", 1005, _CONTROLLER),
    _refused("rocksDBConfigToJson", "-b {broker} -t topics", 355, _ROCKSDB),
    _refused("checkRocksdbCqWriteProgress", "-c {cluster} -n {namesrv} -t {topic}", 354, _ROCKSDB),
    _refused("switchTimerEngine", "-b {broker} -e F", 5001, _ROCKSDB),
    _refused("getBrokerLiteInfo", "-b {broker}", 200074, _LITE),
    Command("getLiteClientInfo", versions=NEWER, why_not=_LITE),
    Command("getLiteGroupInfo", versions=NEWER, why_not=_LITE),
    Command("getLiteTopicInfo", versions=NEWER, why_not=_LITE),
    Command("getParentTopicInfo", versions=NEWER, why_not=_LITE),
    Command("triggerLiteDispatch", versions=NEWER, why_not=_LITE),
    Command("startMonitoring", why_not=_ENDLESS.format("consumerProgress and statsAll")),
    Command("clusterRT", why_not=_ENDLESS.format("checkMsgSendRT")),
    Command("dumpCompactionLog", versions=NEWER, why_not=_LOCAL),
    Command("exportMetadataInRocksDB", versions=NEWER, why_not=_LOCAL),
)

COMMANDS = (*SERVED, *NOT_APPLYING)
