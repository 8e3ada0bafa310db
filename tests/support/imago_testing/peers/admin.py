"""An admin HTTP client of a broker in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_broker.config import BrokerConfig
from imago_broker.config.metaq_section import MetaqSection
from imago_broker.config.sections import (
    AdminSection,
    BrokerSection,
    NamesrvSection,
    RocketmqSection,
    StoreSection,
)

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

    from imago_broker.app import Broker

TOKEN = "sesame"


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
