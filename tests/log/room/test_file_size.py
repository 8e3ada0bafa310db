"""A log keeps the size of the files that it began with: another one is a wrong setting."""

from __future__ import annotations

import pytest

from imago_log.commitlog.log_files import LogFiles
from imago_log.errors import FileSizeError
from imago_testing.stores.in_memory import DATA, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

FILE = 4096
LOG = DATA / "commitlog"


@pytest.fixture
def stopped() -> MemoryVfs:
    """A store of several files, stopped in order."""
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    for _ in range(30):
        model.send(store, [("T", 0, 300)])
    store.close()
    return vfs


def test_a_store_does_not_open_on_files_of_another_size(stopped: MemoryVfs) -> None:
    before = stopped.names(LOG)
    assert len(before) > 2
    with pytest.raises(FileSizeError) as caught:
        open_store(stopped, segment_bytes_max=2 * FILE)
    assert (caught.value.size, caught.value.configured) == (FILE, 2 * FILE)
    assert stopped.names(LOG) == before


@pytest.mark.parametrize("configured", [FILE // 4, FILE // 2, 2 * FILE])
def test_no_file_is_taken_for_a_leftover(stopped: MemoryVfs, configured: int) -> None:
    """A follower's log may begin within a file, which smaller files would end below that."""
    before = stopped.names(LOG)
    with pytest.raises(FileSizeError):
        LogFiles(stopped, LOG, configured).load(FILE // 2)
    assert stopped.names(LOG) == before
