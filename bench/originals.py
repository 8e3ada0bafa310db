"""The original brokers as servers under measurement: as they are shipped, on one core."""

from __future__ import annotations

import contextlib
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from bench.harness import BROKER_CORE, BenchError, Server, load, pin
from imago_testing.java.originals import AS_SHIPPED, metaq_original, rocketmq_original
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def metaq() -> Iterator[Server]:
    """MetaQ 1.4.6.2."""
    with (
        tempfile.TemporaryDirectory(prefix="imago-bench-") as name,
        metaq_original(Path(name), ["bench"], AS_SHIPPED) as broker,
    ):
        pin(broker.pid, BROKER_CORE)
        time.sleep(2)  # the broker registers its topics behind the open port
        # One connection first: the first put makes the partitions, not safely from many.
        load("put", broker.port, pids=[], conns=1, seconds=1, warmup=0)
        yield Server(broker.pid, broker.port, 0)


@contextlib.contextmanager
def rocketmq() -> Iterator[Server]:
    """RocketMQ 5 with its name server."""
    with (
        tempfile.TemporaryDirectory(prefix="imago-bench-") as name,
        rocketmq_original(Path(name), 5, AS_SHIPPED) as broker,
    ):
        create_topic(broker.port, "bench", queues=4)
        pin(broker.pid, BROKER_CORE)
        names = int(broker.registry.rpartition(":")[2])
        yield Server(broker.pid, 0, broker.port, names=names)


def create_topic(port: int, topic: str, *, queues: int) -> None:
    """UPDATE_AND_CREATE_TOPIC (17): the original has no HTTP."""
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": 6, "order": "false"}
    counts = {"readQueueNums": queues, "writeQueueNums": queues}
    ask(port, 17, fields | counts | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0})
    time.sleep(1)  # the broker registers the topic with its name server behind the answer


def create_group(port: int, group: str) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): since 5.5 no consumer comes in without."""
    ask(port, 200, {}, SubscriptionGroupConfig(group_name=group).encode())


def ask(
    port: int, code: int, fields: Mapping[str, object], body: bytes = b""
) -> tuple[dict[str, str], bytes]:
    """Ask a RocketMQ broker over a connection of its own; return the answer's fields and body."""
    header = {
        "code": code,
        "extFields": {name: str(value) for name, value in fields.items()},
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    text = orjson.dumps(header)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body)
        with connection.makefile("rb") as answers:
            size, kind = struct.unpack(">ii", answers.read(8))
            rest = answers.read(size - 4)
    length = kind & 0xFFFFFF
    answer = orjson.loads(rest[:length])
    if answer["code"] != 0:
        raise BenchError(f"request {code} {fields}: {answer['code']} {answer.get('remark')}")
    return answer.get("extFields") or {}, rest[length:]
