"""Rights at the name service that are less than the whole cluster: a run's, a foreign broker's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import ANONYMOUS, User
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.signing import call_signed
from imago_wire.crc import crc31
from imago_wire.remoting.bodies.config import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from imago_wire.remoting.bodies.register import RegisterBrokerBody
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
SECRET = "secret-of-spark"  # of this test alone
FOREIGN = {"brokerName": "broker-a", "brokerAddr": "10.9.9.9:10911", "clusterName": "Other"}


def rule(kind: AccessKind, name: str, operation: Operation, *hosts: str) -> AccessRule:
    return AccessRule(Resource(kind, name), frozenset({operation}), hosts)


async def test_a_run_tells_of_its_own_pipeline_alone(broker: Broker) -> None:
    access = broker.core.access
    access.put_user(User(name="spark", secret=SECRET), BY)
    access.set_rules("spark", [rule(AccessKind.PIPELINE, "lake", Operation.PUBLISH)], BY)
    peer = await RemotingPeer.connect(broker.ports.namesrv_port)

    async def put(namespace: str, key: str, epoch: int = 0) -> RemotingCommand:
        told = {"epoch": epoch, "rows": 1, "lag": 0, "batch": 0, "at": 1}
        ext: dict[str, Any] = {"namespace": namespace, "key": key, "value": json.dumps(told)}
        return await call_signed(peer, Code.PUT_KV_CONFIG, ext, user="spark", secret=SECRET)

    assert (await put("IMAGO_PIPELINES", "lake")).code == ResponseCode.SUCCESS
    for namespace, key in (("IMAGO_PIPELINES", "sea"), ("ORDER_TOPIC_CONFIG", "lake")):
        denied = await put(namespace, key)
        assert denied.code == ResponseCode.NO_PERMISSION, (namespace, key)
    access.set_rules("spark", [rule(AccessKind.PIPELINE, "lake", Operation.DESCRIBE)], BY)
    assert (await put("IMAGO_PIPELINES", "lake")).code == ResponseCode.NO_PERMISSION
    await peer.close()


async def test_a_foreign_broker_registers_from_an_address_that_may(broker: Broker) -> None:
    access = broker.core.access
    table = {"Foreign": TopicConfig(topic_name="Foreign")}
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=3, timestamp=5), topic_config_table=table
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
    ext = {**FOREIGN, "haServerAddr": "10.9.9.9:10912", "brokerId": 0, "bodyCrc32": crc31(body)}
    peer = await RemotingPeer.connect(broker.ports.namesrv_port)
    assert (await peer.call(Code.REGISTER_BROKER, ext, body)).code == ResponseCode.NO_PERMISSION
    elsewhere = rule(AccessKind.CLUSTER, "", Operation.CREATE, "10.9.9.9")
    access.set_rules(ANONYMOUS, [elsewhere], BY)
    assert (await peer.call(Code.REGISTER_BROKER, ext, body)).code == ResponseCode.NO_PERMISSION
    here = rule(AccessKind.CLUSTER, "", Operation.CREATE, "127.0.0.0/8")
    access.set_rules(ANONYMOUS, [here], BY)
    for code, more in (
        (Code.REGISTER_BROKER, ext),
        (Code.BROKER_HEARTBEAT, ext),
        (Code.UNREGISTER_BROKER, ext),
    ):
        answer = await peer.call(code, more, body)
        assert answer.code == ResponseCode.SUCCESS, (code, answer.remark)
    for code in (Code.WIPE_WRITE_PERM_OF_BROKER, Code.UPDATE_NAMESRV_CONFIG, Code.PUT_KV_CONFIG):
        asked = {"brokerName": "shard-0", "namespace": "n", "key": "k", "value": "v"}
        assert (await peer.call(code, asked)).code == ResponseCode.NO_PERMISSION, code
    await peer.close()
