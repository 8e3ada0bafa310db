"""Sends and reads back with the C++ client, through its Python binding: main.py NAMESRV TOPIC.

Prints one JSON line: how many messages were sent, and what was wrong.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

from rocketmq.client import Message, Producer, PushConsumer

READ_SECONDS = 100
RETRIED = b"single 7"


def message(topic: str, body: bytes, delay_level: int = 0) -> Message:
    made = Message(topic)
    made.set_keys("key")
    made.set_tags("tag")
    made.set_body(body)
    if delay_level:
        made.set_delay_time_level(delay_level)
    return made


def send(namesrv: str, topic: str) -> list[bytes]:
    producer = Producer("cpp-producer")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    waited = [b"single %d" % number for number in range(50)] + [b"compressible " * 9000]
    one_way = [b"one way %d" % number for number in range(20)]
    for body in waited:
        producer.send_sync(message(topic, body))
    for body in one_way:
        producer.send_oneway(message(topic, body))
    producer.send_sync(message(topic, b"delayed", delay_level=1))
    producer.shutdown()
    return [*waited, *one_way, b"delayed"]


def read(namesrv: str, topic: str, count: int) -> Counter[bytes]:
    seen: Counter[bytes] = Counter()
    refused: list[bytes] = []

    def take(found: Message) -> None:
        if found.body == RETRIED and not refused:
            refused.append(RETRIED)
            raise RuntimeError("once more, please")  # said on standard error by the binding
        seen[found.body] += 1

    consumer = PushConsumer("cpp-push")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, take)
    consumer.start()
    end = time.monotonic() + READ_SECONDS
    while len(seen) < count and time.monotonic() < end:
        time.sleep(0.2)
    consumer.shutdown()
    return seen


def main(namesrv: str, topic: str) -> None:
    sent = send(namesrv, topic)
    seen = read(namesrv, topic, len(sent))
    faults = [f"saw {body[:30]!r} {seen[body]} times" for body in sent if seen[body] != 1]
    print(json.dumps({"sent": len(sent), "faults": faults}))


main(*sys.argv[1:])
