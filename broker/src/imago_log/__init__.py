"""The store: one log as the only truth, and views that can be rebuilt from it.

Importing this package loads only what is used: many want its names of errors, few the store.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.config import StoreConfig
    from imago_log.disk.pressure import DiskLevel
    from imago_log.errors import (
        CorruptLogError,
        CorruptRecordError,
        DataFolderLockedError,
        DeadQueueError,
        DiskFullError,
        LogIOError,
        NotLeadingError,
        ReplicaGapError,
        StaleEpochError,
        StoreClosedError,
        StoreError,
    )
    from imago_log.results import (
        DamagedRange,
        FileSlice,
        MetaqRead,
        MetaqStatus,
        ReadResult,
        ReadStatus,
        StoreHealth,
    )
    from imago_log.store import MessageStore

_HOMES = {
    "config": ("StoreConfig",),
    "disk.pressure": ("DiskLevel",),
    "errors": (
        "CorruptLogError",
        "CorruptRecordError",
        "DataFolderLockedError",
        "DeadQueueError",
        "DiskFullError",
        "LogIOError",
        "NotLeadingError",
        "ReplicaGapError",
        "StaleEpochError",
        "StoreClosedError",
        "StoreError",
    ),
    "results": (
        "DamagedRange",
        "FileSlice",
        "MetaqRead",
        "MetaqStatus",
        "ReadResult",
        "ReadStatus",
        "StoreHealth",
    ),
    "store": ("MessageStore",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CorruptLogError",
    "CorruptRecordError",
    "DamagedRange",
    "DataFolderLockedError",
    "DeadQueueError",
    "DiskFullError",
    "DiskLevel",
    "FileSlice",
    "LogIOError",
    "MessageStore",
    "MetaqRead",
    "MetaqStatus",
    "NotLeadingError",
    "ReadResult",
    "ReadStatus",
    "ReplicaGapError",
    "StaleEpochError",
    "StoreClosedError",
    "StoreConfig",
    "StoreError",
    "StoreHealth",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
