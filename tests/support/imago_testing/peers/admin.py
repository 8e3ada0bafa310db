"""An admin HTTP client of a broker in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_broker.config import BrokerConfig
from imago_broker.config.sections.metaq_section import MetaqSection
from imago_broker.config.sections.sections import (
    AdminSection,
    BrokerSection,
    NamesrvSection,
    RocketmqSection,
    StoreSection,
)
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import aiohttp

    from imago_broker.app import Broker
    from imago_wire.records.record import Placed

TOKEN = "sesame"
_BORN_HOST = bytes((127, 0, 0, 1)) + (4000).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Admin:
    """Calls of one broker's admin interface: status and JSON."""

    session: aiohttp.ClientSession
    broker: Broker

    async def call(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.broker.ports.admin_port}{path}"
        async with self.session.request(method, url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()


def broker_config(folder: Path) -> BrokerConfig:
    """Every port is any free one."""
    (folder / "token").write_text(TOKEN + "\n")
    return BrokerConfig(
        broker=BrokerSection(data_dir=str(folder / "data"), host="127.0.0.1", bind="127.0.0.1"),
        metaq=MetaqSection(port=0),
        rocketmq=RocketmqSection(port=0, fast_port=0),
        namesrv=NamesrvSection(port=0),
        store=StoreSection(disk_clean_ratio=1.0, disk_force_ratio=1.0, disk_full_ratio=1.0),
        admin=AdminSection(port=0, token_file=str(folder / "token"), loopback_trusted=True),
    )


def put(broker: Broker, topic: str, *bodies: bytes, properties: bytes = b"") -> None:
    """Put messages into queue 0 and complete the turn."""
    tail = broker.store.tail(topic, 0)
    statuses: list[PutStatus] = []

    def done(_token: object, status: PutStatus, _placed: Sequence[Placed]) -> None:
        statuses.append(status)

    for body in bodies:
        entry = make_entry(tail, body, properties, born_ms=1_700_000_000_000, born_host=_BORN_HOST)
        broker.messages.put_one(entry, None, done, None)
    broker.messages.flush_turn()
    assert statuses == [PutStatus.OK] * len(bodies)
