"""A data folder that is made on a disk without room: the process says so and ends with exit 4."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import storage
from imago_broker.errors import ExitCode, FatalError
from imago_log import MessageStore
from imago_testing.clusters.brokers import loopback_config
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("lead", [True, False], ids=["alone", "member"])
@pytest.mark.parametrize("free", [0, 2_048, 1 << 20])
def test_a_new_folder_on_a_full_disk_is_told_and_begins_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lead: bool, free: int
) -> None:
    vfs, begin = MemoryVfs(), MessageStore.open
    vfs.free_bytes = free
    monkeypatch.setattr(MessageStore, "open", partial(begin, vfs=vfs, threaded=False))
    config = loopback_config(tmp_path / "new")
    opened = partial(
        storage.open_store,
        config,
        clock=ManualClock(),
        address="127.0.0.1",
        rocketmq_port=1,
        lead=lead,
    )
    with pytest.raises(FatalError) as refused:
        opened()
    assert refused.value.exit_code is ExitCode.IO
    assert str(tmp_path / "new") in str(refused.value) or "No space left" in str(refused.value)
    vfs.free_bytes = 1 << 30
    opened().close()
