"""What a broker's process does for it, when it is asked from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config import BrokerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessHooks:
    """Given by the code that runs the broker."""

    reread: Callable[[], BrokerConfig] | None = None
    """Gives the configuration again; None: there is nothing to read it from."""
    stop: Callable[[], None] | None = None
    """Begins an orderly stop; None: the broker is somebody's part."""
