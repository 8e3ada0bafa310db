"""Static topics, by what RocketMQ's own tools print of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

_MAPPING = re.compile(r'"bname":"([^"]+)",\s*"currIdMap":\{([^}]*)\}')


def owners(route: str) -> set[str]:
    """Return the brokers that have current queues, by what `topicRoute` prints."""
    return {name for name, queues in _MAPPING.findall(route) if queues.strip()}


def wait_for_owners(names: set[str], route: Callable[[], str]) -> None:
    """Wait until routes tell that these brokers have the queues: a client reads them once."""
    wait_until(
        lambda: owners(route()) == names,
        seconds_max=60,
        what=f"routes tell that the queues are on {', '.join(sorted(names))}",
    )
