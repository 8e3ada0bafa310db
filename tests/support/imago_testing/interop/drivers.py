"""The driver processes of the original clients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_testing.java.driver import JavaDriver
from imago_testing.java.modules import METAQ_CLIENT, ROCKETMQ4_CLIENT, ROCKETMQ5_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_ROCKETMQ_MAIN = "dev.imago.interop.rocketmq.RocketmqDriver"
METAQ, ROCKETMQ4, ROCKETMQ5 = "metaq", "rocketmq4", "rocketmq5"
_PARTS = {
    METAQ: (METAQ_CLIENT, "dev.imago.interop.metaq.MetaqDriver"),
    ROCKETMQ4: (ROCKETMQ4_CLIENT, _ROCKETMQ_MAIN),
    ROCKETMQ5: (ROCKETMQ5_CLIENT, _ROCKETMQ_MAIN),
}


@contextlib.contextmanager
def running_drivers(
    names: Iterable[str], folder: Callable[[str], Path]
) -> Iterator[dict[str, JavaDriver]]:
    """Start these side by side, each in a folder of its own; they may not be ready yet."""
    started: dict[str, JavaDriver] = {}
    try:
        for name in names:
            module, main = _PARTS[name]
            started[name] = JavaDriver(module, main, folder(name))
        yield started
    finally:
        for driver in started.values():
            driver.close()
