"""Topics and groups of RocketMQ's own proxy, for the stories of its SDKs."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING, Any

from imago_testing.java.driver import java_command
from imago_testing.java.modules import ROCKETMQ5_CLIENT
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUPS = ("all", "odd", "sql", "ordered", "late", "done", "push", "stubborn", "again", "urgent")
"""Of the stories, behind the topic's name and a dash."""


def put_there(ready: Mapping[str, Any], path: str, value: Mapping[str, Any]) -> None:
    """Make a topic or group of the original, by its own tool."""
    kind, _, name = path.partition("/")
    words = ["updateTopic", "-t", name] if kind == "topics" else ["updateSubGroup", "-g", name]
    words += ["-b", ready["broker"], "-n", ready["namesrv"]]
    if kind == "topics":
        attributes = (f"+{key}={said}" for key, said in value["attributes"].items())
        words += ["-r", "4", "-w", "4", "-a", ",".join(attributes)]
    for key, flag in (("consume_message_orderly", "-o"), ("retry_max_times", "-r")):
        if key in value:
            words += [flag, str(value[key]).lower()]
    main = "org.apache.rocketmq.tools.command.MQAdminStartup"
    command = [*java_command(ROCKETMQ5_CLIENT, main, ready["home"]), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "success" in done.stdout, done.stdout + done.stderr
    if kind == "topics":
        asyncio.run(make_groups(int(ready["broker"].rpartition(":")[2]), name))


async def make_groups(port: int, topic: str) -> None:
    """Since 5.5 the original lets no consumer in whose group was not made before."""
    peer = await RemotingPeer.connect(port)
    for suffix in GROUPS:
        body = SubscriptionGroupConfig(group_name=f"{topic}-{suffix}").encode()
        answer = await peer.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    await peer.close()
