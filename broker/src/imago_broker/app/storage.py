"""Opening the store with the broker's settings, and its errors as exit codes."""

from __future__ import annotations

import logging
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.app.member import reset_member
from imago_broker.core.deletion_times import DeletionTimes
from imago_broker.errors import ExitCode, FatalError
from imago_log.config import StoreConfig, always_due
from imago_log.errors import (
    CorruptLogError,
    DataFolderLockedError,
    DiskFullError,
    FileSizeError,
    LaterFormatError,
    LogIOError,
    RestoreUnfinishedError,
    StoreError,
)
from imago_log.store import MessageStore
from imago_wire.records.record import host_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config import BrokerConfig
    from imago_broker.ports import Clock
    from imago_log.config import Due

logger = logging.getLogger(__name__)

_CURES: Final[Mapping[type[Exception], str]] = MappingProxyType(
    {
        DataFolderLockedError: "stop that broker, or set another broker.data_dir",
        RestoreUnfinishedError: "repeat `imago backup restore`, it goes on where it was",
        LaterFormatError: "start that version again, or restore a backup into another folder",
    }
)
"""Of folders that belong to somebody else for now."""


def open_store(
    config: BrokerConfig, *, clock: Clock, address: str, rocketmq_port: int, lead: bool
) -> MessageStore:
    """Open or make the data folder; `FatalError` says why it cannot be used.

    `lead`: the shard has no other members, so the store may write at once.
    """
    folder = Path(config.broker.data_dir)
    try:
        reset_member.set_aside(folder, ratio_max=config.store.disk_clean_ratio)
        return MessageStore.open(
            store_config(
                config,
                folder,
                host_bytes(address, rocketmq_port),
                DeletionTimes(clock.epoch_ms, config.store.delete_when).due,
            ),
            clock=clock.epoch_ms,
            monotonic=clock.monotonic_ms,
            lead=lead,
        )
    except tuple(_CURES) as error:
        cure = _CURES[type(error)]
        raise FatalError(f"{error}: {cure}", exit_code=ExitCode.DATA) from error
    except FileSizeError as error:
        raise FatalError(
            f"{error}: set store.segment_bytes_max to {error.size} again, a log keeps the size of"
            " the files that it began with",
            exit_code=ExitCode.USAGE,
        ) from error
    except CorruptLogError as error:
        raise FatalError(
            f"{error}; check it with `imago log check {folder}`", exit_code=ExitCode.DATA
        ) from error
    except DiskFullError as error:
        raise FatalError(
            f"{folder}: no room for a log, whose files take {config.store.segment_bytes_max} bytes"
            " each: free space on its disk, or set another broker.data_dir",
            exit_code=ExitCode.IO,
        ) from error
    except LogIOError as error:
        raise FatalError(str(error), exit_code=ExitCode.IO) from error
    except OSError as error:
        raise FatalError(f"{folder}: {error}", exit_code=ExitCode.IO) from error


def close_store(store: MessageStore, *, clean: bool) -> None:
    """Close the store; FatalError where its disk does not let it."""
    try:
        store.close(clean=clean)
    except StoreError as error:
        raise FatalError(str(error), exit_code=ExitCode.IO) from error
    logger.info("broker_stopped clean=%s", clean)


def store_config(
    config: BrokerConfig, folder: Path, store_host: bytes, due: Due = always_due
) -> StoreConfig:
    """Translate the settings into the store's own; `due`: when expired files go."""
    store = config.store
    retention_ms, retention_bytes = config.tier.disk_keeps(
        store.retention_ms, store.retention_bytes_max
    )
    return StoreConfig(
        data_dir=folder,
        metaq_broker_id=config.metaq_broker_id,
        store_host=store_host,
        segment_bytes_max=store.segment_bytes_max,
        message_bytes_max=max(config.rocketmq.message_bytes_max, config.metaq.message_bytes_max),
        metaq_segment_bytes_max=store.metaq_segment_bytes_max,
        retention_ms=retention_ms,
        due=due,
        retention_bytes=retention_bytes,
        scrub_interval_ms=store.scrub_interval_ms,
        disk_clean_ratio=store.disk_clean_ratio,
        disk_force_ratio=store.disk_force_ratio,
        disk_force_unread=store.disk_force_deletes == "oldest",
        disk_full_ratio=store.disk_full_ratio,
    )
