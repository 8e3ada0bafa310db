"""Whole brokers inside the test's process, on loopback and free ports."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from imago_broker.app import Broker
from imago_broker.config.loading import from_tree, with_overrides

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.config import BrokerConfig


def loopback_tree(folder: Path) -> dict[str, Any]:
    """Return the settings of a small broker alone."""
    return {
        "broker": {"data_dir": str(folder), "bind": "127.0.0.1", "host": "127.0.0.1"},
        "metaq": {"port": 0},
        "rocketmq": {"port": 0},
        "namesrv": {"port": 0},
        "admin": {"port": 0, "loopback_trusted": True},
        # Whether the disk of the machine that runs the tests is full is no concern of theirs.
        "store": {
            "segment_bytes_max": 16 << 20,
            "disk_clean_ratio": 1.0,
            "disk_force_ratio": 1.0,
            "disk_full_ratio": 1.0,
        },
    }


def loopback_config(folder: Path, *overrides: str) -> BrokerConfig:
    """Return a configuration for a small broker alone; overrides are `section.key=value`."""
    tree = loopback_tree(folder)
    with_overrides(tree, ["broker.drain_seconds=5", *overrides])
    return from_tree(tree)


@asynccontextmanager
async def running_broker(folder: Path, *overrides: str) -> AsyncIterator[Broker]:
    """Run a broker on a data folder; stop it in order afterwards."""
    broker = Broker(loopback_config(folder, *overrides))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
