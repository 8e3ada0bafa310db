"""The store: one log as the only truth, and views that can be rebuilt from it."""

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
