"""What a subject brings along, before there is a broker, and how it becomes part of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.model import feature_level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.processors.rocketmq.access.rights import Right
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly
    from imago_broker.processors.rocketmq.installed import Installed
    from imago_broker.service.access.throttling import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One subject."""

    rights: Mapping[int, Right]
    """What each of its request codes needs a right to."""
    limited: Mapping[int, Direction]
    """Those whose rate and bytes may be limited: all that take messages, or answer with bodies."""
    level: int = feature_level.FIRST
    """The cluster's feature level from which on its requests are served."""
    install: Callable[[RocketmqAssembly], Installed | None]
    """Makes its parts in one broker, over what that has anyway; None: it is set to have none."""
