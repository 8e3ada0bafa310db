"""Pictures of each page of the dashboard, for people who have not got a cluster yet.

`IMAGO_REWRITE=1 pytest tests/browser/test_pictures.py` makes them anew, of a shop's cluster after a
few minutes of traffic: look at them before you commit them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import pytest

from imago_cli.clusters.admin_http import ask
from imago_client import ClientError, ConsumerConfig, Message
from imago_client.blocking import Client
from imago_testing.processes.dashboard import admin_of, go, watched
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGES: Final = ROOT / "docs" / "images"
PAGES_SCRIPT: Final = ROOT / "broker/src/imago_broker/admin/dashboard/static/pages.js"
PICTURES: Final = {
    "overview": ("#/", "Members"),
    "topics": ("#/topics", "invoices"),
    "topic": ("#/topics/orders", "Newest messages"),
    "groups": ("#/groups", "billing"),
    "group": ("#/groups/billing", "behind"),
    "messages": ("#/messages?by=newest&topic=orders", "order-"),
    "letters": ("#/letters/mailer", "imago dlq replay mailer"),
    "waiting": ("#/waiting", "reminder"),
    "clients": ("#/clients", "Connected to any broker"),
    "nodes": ("#/nodes", "6 brokers answer"),
    "pipelines": ("#/pipelines", "pipeline"),
    "users": ("#/users/ann", "orders"),
    "limits": ("#/limits", "user:ann"),
    "configuration": ("#/configuration?contains=retention", "retention"),
    "audit": ("#/audit", "PUT"),
    "doctor": ("#/doctor", "findings"),
}
"""By name: the page, and what it shows once it is whole."""
SECONDS: Final = 120
"""Of traffic before the first picture: a chart of one point shows nothing."""
REWRITES: Final = "IMAGO_REWRITE" in os.environ


@contextmanager
def shop(folder: Path) -> Iterator[Up]:
    """A shop's cluster of two shards of three members, with traffic; billing is slow."""
    options = ["--shards", "2", "--replicas", "3", "--port-base", str(free_port_block(90))]
    with up(folder / "data", *options) as running:
        _fill(running)
        ended = Event()
        threads = [Thread(target=each, args=(running, ended)) for each in (_sell, _audit, _bill)]
        for thread in threads:
            thread.start()
        try:
            yield running
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def _fill(running: Up) -> None:
    with Client(running.ready["namesrv"]) as client:
        for topic, queues in (("orders", 2), ("invoices", 2), ("shipments", 1), ("clicks", 4)):
            client.admin.create_topic(topic, queues=queues)
        reminder = Message("invoices", b"pay, please", keys=("reminder-7",), delay_ms=3_600_000)
        client.producer().send(reminder)
        client.producer().send_batch(
            [Message("invoices", b"to: nobody", keys=(f"invoice-{n}",)) for n in range(3)]
        )
        given_up = 0
        mailer = ConsumerConfig(group="mailer", start_from="earliest")
        with client.group_consumer(mailer, ["invoices"]) as consumer:
            while given_up < 3:
                for message in consumer.poll(1):
                    consumer.retry(message, -1)
                    given_up += 1
    admin = admin_of(running, 0)
    rule = {"resource": {"type": "Topic", "name": "orders"}, "operations": ["publish", "subscribe"]}
    ask(admin, "/admin/v1/users/ann", {"rules": [rule], "enabled": True}, method="PUT")
    ask(admin, "/admin/v1/users/ann/tokens", {"note": "her laptop", "expiresSeconds": 86_400})
    limit = {"quotas": {"producerBytesPerSecond": 1_000_000}}
    ask(admin, "/admin/v1/quotas/user:ann", limit, method="PUT")


def _sell(running: Up, ended: Event) -> None:
    with Client(running.ready["namesrv"]) as client:
        producer, number = client.producer(), 0
        while not ended.wait(0.02):
            number += 1
            with suppress(ClientError):  # a busy machine may elect another master
                for message in _sold(number):
                    producer.send(message)


def _sold(number: int) -> Iterator[Message]:
    sold = {"order": number, "customer": f"c{number % 97}", "cents": 995 + number * 7 % 9000}
    body, key = json.dumps(sold).encode(), (f"order-{number}",)
    yield Message("orders", body, tags="paid" if number % 3 else "open", keys=key)
    yield Message("clicks", b"c" * (number % 400))
    if number % 5 == 0:
        yield Message("invoices", body, keys=key)
        yield Message("shipments", body, keys=key)


def _read(running: Up, ended: Event, group: str, topics: list[str], pause_s: float) -> None:
    with (
        Client(running.ready["namesrv"]) as client,
        client.group_consumer(ConsumerConfig(group=group), topics) as consumer,
    ):
        while not ended.is_set():
            consumer.poll(0.2, messages_max=5)
            ended.wait(pause_s)


def _audit(running: Up, ended: Event) -> None:
    _read(running, ended, "audit", ["orders", "invoices", "shipments"], 0)


def _bill(running: Up, ended: Event) -> None:
    _read(running, ended, "billing", ["orders"], 0.11)


async def _take(running: Up, folder: Path) -> None:
    async with watched(admin_of(running, 0), folder) as page:
        for name, (place, shown) in PICTURES.items():
            await go(page, place, shown)
            await asyncio.sleep(2)  # a chart and rates need a second look
            await page.picture(IMAGES / f"dashboard-{name}.png")


def test_each_page_has_a_picture(tmp_path: Path) -> None:
    linked = set(re.findall(r'path: "(\w*)", link', PAGES_SCRIPT.read_text()))
    assert linked == {
        place.removeprefix("#/").split("/")[0].split("?")[0] for place, _ in PICTURES.values()
    }
    if REWRITES:
        with shop(tmp_path) as running:
            time.sleep(SECONDS)
            asyncio.run(_take(running, tmp_path))
    shown = (ROOT / "docs" / "dashboard.md").read_text()
    for name in PICTURES:
        assert (IMAGES / f"dashboard-{name}.png").stat().st_size > 10_000
        assert f"](images/dashboard-{name}.png)" in shown
