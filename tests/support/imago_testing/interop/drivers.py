"""The driver processes of the original clients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_testing.java.driver import JavaDriver, java_command
from imago_testing.java.modules import METAQ_CLIENT, ROCKETMQ4_CLIENT, ROCKETMQ5_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_ROCKETMQ_MAIN = "dev.imago.interop.rocketmq.RocketmqDriver"
_METAQ_MAIN = "dev.imago.interop.metaq.MetaqDriver"
METAQ, ROCKETMQ4, ROCKETMQ5 = "metaq", "rocketmq4", "rocketmq5"
METAQ_CONSUMER = "metaq-consumer"
"""A second process of the MetaQ client, whose log has nothing of producers."""
PARTS = {
    METAQ: (METAQ_CLIENT, _METAQ_MAIN),
    METAQ_CONSUMER: (METAQ_CLIENT, _METAQ_MAIN),
    ROCKETMQ4: (ROCKETMQ4_CLIENT, _ROCKETMQ_MAIN),
    ROCKETMQ5: (ROCKETMQ5_CLIENT, _ROCKETMQ_MAIN),
}


@contextlib.contextmanager
def running_drivers(
    names: Iterable[str], folder: Callable[[str], Path]
) -> Iterator[dict[str, JavaDriver]]:
    """Start these side by side, each in a folder of its own; they may not be ready yet."""

    def command(name: str, home: Path) -> list[str]:
        module, main = PARTS[name]
        return java_command(module, main, home)

    with running_commands(names, command, folder) as started:
        yield started


@contextlib.contextmanager
def running_commands(
    names: Iterable[str], command: Callable[[str, Path], list[str]], folder: Callable[[str], Path]
) -> Iterator[dict[str, JavaDriver]]:
    """Run drivers by commands of one's own, such as those that begin with `kubectl exec`."""
    started: dict[str, JavaDriver] = {}
    try:
        for name in names:
            home = folder(name)
            started[name] = JavaDriver(name, command(name, home), home)
        yield started
    finally:
        for driver in started.values():
            driver.close()
