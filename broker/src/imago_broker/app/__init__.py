"""A broker process: builds all parts, starts them in order, stops them in reverse.

Importing this package loads only what is used: a name service needs few of the parts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.app.broker import Broker
    from imago_broker.app.process import main, run

_HOME_OF = {"Broker": "broker", "main": "process", "run": "process"}

__all__ = ["Broker", "main", "run"]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
