"""Messages whose only use is that there are many bytes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers

BODY: Final = 100 << 10
_SEND: Final = """\
import os, sys
from imago_client import Message
from imago_client.blocking import Client
topic, size, many = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Client(sys.argv[1]) as client:
    producer = client.producer()
    for _ in range(many):
        producer.send(Message(topic, os.urandom(size)))
"""


def send(brokers: Brokers, topic: str, mebibytes: int, *, seconds_max: float = 180.0) -> None:
    """Have so much stored in a topic of its own."""
    brokers.make_topic(topic)
    many = str((mebibytes << 20) // BODY)
    asked = ("python3", "-c", _SEND, brokers.bootstrap, topic, str(BODY), many)
    pod = brokers.names()[0]
    brokers.kube.execute(brokers.namespace, pod, *asked, seconds_max=seconds_max)
