"""Requests with credentials, and one valid request of each code."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.fields import wire_name
from imago_wire.remoting.headers.table import REQUEST_HEADERS
from imago_wire.remoting.peer import OWN_VERSION
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand

TOPIC, GROUP = "orders", "readers"
_GROUP_FIELDS: Final = {
    "group",
    "groupName",
    "consumerGroup",
    "producerGroup",
    "a",
    "srcGroup",
    "destGroup",
    "compareGroup",
}
_FIELDS: Final[Mapping[str, str]] = {
    "topic": TOPIC,
    "b": TOPIC,
    "defaultTopic": "TBW102",
    "c": "TBW102",
    "subject": "User:somebody",
    "username": "somebody",
    "accessKey": "somebody",
    "secretKey": "secret-of-somebody",
    "globalWhiteAddrs": "10.99.99.99",
    "extraInfo": "0 0 1000 0 0 shard-0 0 0",
    "READ_AHEAD_MODE": "0",
    "commitOrRollback": "12",
    "perm": "6",
    "p": "6",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "topicFilterType": "SINGLE_TAG",
    "maxMsgNums": "1",
    "sysFlag": "0",
    "key": "k",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": TOPIC,
}
_SUBSCRIPTION: Final = {"topic": TOPIC, "subString": "*"}
_QUEUE: Final = {"topic": TOPIC, "brokerName": "shard-0", "queueId": 0}
_POLICY: Final = {"resource": f"Topic:{TOPIC}", "actions": ["Pub"], "decision": "Allow"}
_ACL: Final = {"policies": [{"policyType": "Custom", "entries": [_POLICY]}]}
_LOCK: Final = {"clientId": "c", "consumerGroup": GROUP, "mqSet": [_QUEUE]}
_USER: Final = {"username": "somebody", "password": "secret-of-somebody"}
BODIES: Final[Mapping[int, Any]] = {
    Code.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": [_SUBSCRIPTION]}],
    },
    Code.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": GROUP, "subscriptionData": _SUBSCRIPTION},
    Code.LOCK_BATCH_MQ: _LOCK,
    Code.UNLOCK_BATCH_MQ: _LOCK,
    Code.BATCH_ACK_MESSAGE: {
        "brokerName": "shard-0",
        "acks": [
            {"c": GROUP, "t": TOPIC, "so": 0, "q": 0, "rq": 0, "pt": 0, "it": 1000, "b": "AQ=="}
        ],
    },
    Code.LITE_SUBSCRIPTION_CTL: {
        "subscriptionSet": [
            {"action": "COMPLETE_ADD", "clientId": "c", "group": GROUP, "topic": TOPIC}
        ]
    },
    Code.QUERY_ASSIGNMENT: {"clientId": "c", "consumerGroup": GROUP, "topic": TOPIC},
    Code.SET_MESSAGE_REQUEST_MODE: {"consumerGroup": GROUP, "topic": TOPIC, "mode": "PULL"},
    Code.UPDATE_AND_CREATE_TOPIC_LIST: {"topicConfigList": [{"topicName": TOPIC}]},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": GROUP},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": GROUP}]},
    Code.AUTH_CREATE_USER: _USER,
    Code.AUTH_UPDATE_USER: _USER,
    Code.AUTH_CREATE_ACL: _ACL,
    Code.AUTH_UPDATE_ACL: _ACL,
}


def valid_request(code: int, *, offset: int) -> tuple[dict[str, str], bytes]:
    """Return header fields and body of a request that the handler of a code can read.

    It is about `TOPIC`, `GROUP`, and where a log offset is asked for the message at `offset`.
    """
    known = Code(code)
    ext = {"offset": str(offset), "commitLogOffset": str(offset)}
    header = REQUEST_HEADERS.get(known)
    if known is Code.SEND_BATCH_MESSAGE:
        header = REQUEST_HEADERS[Code.SEND_MESSAGE_V2]
    if header is not None:
        hints = get_type_hints(header)
        for spec in fields(header):  # type: ignore[arg-type]
            name = wire_name(spec)
            if name not in ext:
                text = GROUP if name in _GROUP_FIELDS else _FIELDS.get(name)
                ext[name] = text if text is not None else _default(hints[spec.name])
    body = json.dumps(BODIES[known]).encode() if known in BODIES else b""
    return ext, body


def _default(hint: object) -> str:
    text = str(hint)
    return "false" if "bool" in text else "0" if "int" in text else "x"


async def call_signed(
    peer: RemotingPeer,
    code: int,
    ext: Mapping[str, object],
    body: bytes = b"",
    *,
    user: str,
    secret: str,
    version: int = OWN_VERSION,
) -> RemotingCommand:
    """Send a request as this user and return its answer."""
    texts = {name: str(value) for name, value in ext.items()}
    told = signed(texts, body, access_key=user, secret=secret)
    return await peer.call(code, told, body, version=version)
