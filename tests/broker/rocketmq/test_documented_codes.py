"""The page for RocketMQ users lists exactly the codes that the tables serve."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.namesrv.server import NameService
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.processors.rocketmq.table import build_processors

if TYPE_CHECKING:
    from imago_broker.app import Broker

PAGE = Path(__file__).parents[3] / "docs" / "rocketmq.md"


def numbers(text: str) -> set[int]:
    return {int(word) for word in re.findall(r"\b\d+\b", text)}


async def test_codes_of_the_broker(broker: Broker) -> None:
    part = PAGE.read_text().split("## What a broker serves")[1].split("To clients")[0]
    listed = [numbers(line.split("|")[1]) for line in part.splitlines() if line.startswith("| ")]
    documented = set().union(*listed)
    processors = build_processors(broker.rocketmq, asyncio.get_running_loop())
    assert documented == set(processors.main.rows)
    assert sum(map(len, listed)) == len(documented), "a code stands in two lines"


async def test_codes_of_the_name_service(broker: Broker) -> None:
    text = PAGE.read_text().split("The name service serves ")[1].split(". It")[0]
    table = NameService(NameServiceConfig(), broker.coordinator, broker.clock).table
    assert numbers(text) == set(table.rows)
