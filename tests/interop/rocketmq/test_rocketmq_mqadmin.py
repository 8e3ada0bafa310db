"""Every command of RocketMQ's mqadmin, of 4.9.8 and 5.5.0, against brokers with messages."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import TYPE_CHECKING, NamedTuple

import pytest

from imago_testing.interop.drivers import PARTS, ROCKETMQ4, ROCKETMQ5
from imago_testing.interop.mqadmin import ABOUT_ACCESS, COMMANDS, SERVED, Command
from imago_testing.interop.rocketmq import Outgoing
from imago_testing.interop.targets import TargetName, chosen_target
from imago_testing.java.driver import DriverError, JavaDriver, java_command
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from imago_testing.interop.rocketmq import Admin, RocketmqClient

pytestmark = [
    pytest.mark.others,
    pytest.mark.shows("admin"),
]
MAIN = "dev.imago.interop.rocketmq.Tools"
CLIENTS = {4: ROCKETMQ4, 5: ROCKETMQ5}
# What does not apply to Imago may well apply to an original broker.
# The originals run without access control here, and so refuse the commands about it.
TRIED = (
    COMMANDS
    if chosen_target() is TargetName.IMAGO
    else [command for command in SERVED if command.name not in ABOUT_ACCESS]
)
CASES = [
    pytest.param(CLIENTS[version], command, id=f"{version}-{command.name}")
    for version in CLIENTS
    for command in TRIED
    if version in command.versions and command.lines
]
_serial = itertools.count(1)


class Rig(NamedTuple):
    """mqadmin, and what its commands are called with."""

    tools: JavaDriver
    names: Mapping[str, str]

    def run(self, command: Command) -> str:
        """Run its lines; return what they print, blanks as one."""
        names = {**self.names, "new": f"mqadmin-new-{next(_serial)}"}
        lines = [line.format(**names) for line in command.lines]
        printed = "\n".join(
            self.tools.call("run", namesrv=names["namesrv"], line=line.split()) for line in lines
        )
        printed = re.sub(r"[ \t]+", " ", printed)
        missing = [part for part in command.shows if part.format(**names) not in printed]
        assert not missing, f"{lines}\n{printed}"
        return printed


@pytest.fixture(scope="module")
def tools(
    rocketmq: RocketmqClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaDriver]:
    home = tmp_path_factory.mktemp("mqadmin")
    module, _ = PARTS[CLIENTS[rocketmq.version]]
    driver = JavaDriver("mqadmin", java_command(module, MAIN, home), home).wait_ready()
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def rig(
    rocketmq: RocketmqClient,
    admin: Admin,
    tools: JavaDriver,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Rig]:
    """A topic on every broker with a message, its producer, and a group that has consumed it."""
    topic = f"mqadmin-{rocketmq.version}"
    second = f"{topic}-second"
    for made in (topic, second):
        admin.create_topic(made)
    group, producers, key = f"{topic}-group", f"{topic}-producers", "key-of-message"
    masters = admin.masters()
    name = min(masters)
    wait_until(
        lambda: (
            {topic, second} <= set(admin.call("topics"))
            and all(
                set(admin.call("route", topic=made)["queues"]) == set(masters)
                for made in (topic, second)
            )
        ),
        seconds_max=60,
        what=f"all brokers are in the routes of {topic} and {second}",
    )
    folder = tmp_path_factory.mktemp("exports")
    with contextlib.ExitStack() as stack:
        consumer = stack.enter_context(rocketmq.push(topic, group))
        producer = stack.enter_context(rocketmq.producer(producers))
        [sent] = producer.send(topic, [Outgoing(body=b"message", keys=key, tags="tag")])
        assert len(consumer.take(1)) == 1
        wait_until(
            lambda: _has_committed(admin, group),
            seconds_max=60,
            what="the group has committed",
        )
        line = ["producer", "-b", masters[name]]
        wait_until(
            lambda: (
                f"({producers})" in tools.call("run", namesrv=rocketmq.namesrv, line=line)
                or rocketmq.version != min(CLIENTS)
            ),
            seconds_max=60,
            what="brokers know the producer by its heartbeat",
        )
        names = {
            "namesrv": rocketmq.namesrv,
            "cluster": next(iter(admin.call("cluster")["clusters"])),
            "name": name,
            "broker": masters[name],
            "at": sent.queue.broker,
            "at_broker": masters[sent.queue.broker],
            "topic": topic,
            "second": second,
            "group": group,
            "producers": producers,
            "key": key,
            "id": sent.id,
            "unknown_id": "0" * len(sent.id),
            "offset_id": sent.offset_id,
            "queue": str(sent.queue.queue),
            "offset": str(sent.offset),
            "folder": str(folder),
            "topics": _written(folder / "topics.json", _TOPICS),
            "groups": _written(folder / "groups.json", _GROUPS),
        }
        yield Rig(tools, names)


@pytest.mark.parametrize("rocketmq", [ROCKETMQ4, ROCKETMQ5], indirect=True, ids=["4.9", "5"])
def test_table_has_every_command(rocketmq: RocketmqClient, tools: JavaDriver) -> None:
    listed = {command.name for command in COMMANDS if rocketmq.version in command.versions}
    assert listed == set(tools.call("names"))
    assert all(command.lines or command.why_not for command in COMMANDS)


@pytest.mark.parametrize(("rocketmq", "command"), CASES, indirect=["rocketmq"])
def test_command_does_what_it_says(rig: Rig, command: Command) -> None:
    printed = rig.run(command)
    assert command.prints_failure == ("Exception" in printed), printed


def _has_committed(admin: Admin, group: str) -> bool:
    try:
        return any(queue["consumer_offset"] for queue in admin.call("progress", group=group))
    except DriverError:
        return False  # 206: the original 4.9 knows no group without offsets


def _written(path: Path, content: object) -> str:
    path.write_text(json.dumps(content))
    return str(path)


_TOPICS = [
    {
        "topicName": "mqadmin-of-a-list",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
]
_GROUPS = [
    {
        "groupName": "mqadmin-group-of-a-list",
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
    }
]
