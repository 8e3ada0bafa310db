"""What stands behind the end of a log and does not say that it belongs there is no part of it."""

from __future__ import annotations

import pytest

from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

FILE = 4096


@pytest.mark.parametrize("gap", [0, 8, 64])
@pytest.mark.parametrize("what", ["noise", "older bytes"])
@pytest.mark.parametrize("stop", ["closed", "killed", "killed and synced"])
def test_what_stands_behind_a_log_is_none_of_it(what: str, gap: int, stop: str) -> None:
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = open_store(vfs, clock)
    store.create_topic("T", {})
    for _ in range(30):
        model.send(store, [("T", 0, 300)])
    end = store.log_end
    if stop == "killed and synced":
        for _ in range(2):
            clock.now_ms += 5000
            store.tick()
    left = vfs if stop == "closed" else vfs.crashed(power_loss=False)
    store.close()
    vfs = left
    path, at = DATA / "commitlog" / f"{end - end % FILE:020d}", end % FILE + gap
    content = bytearray(vfs.content(path))
    noise = bytes(content[40:440]) if what == "older bytes" else bytes(range(1, 201)) * 2
    noise = noise[: FILE - at]
    assert len(noise) > 100, "there is room behind the end"
    content[at : at + len(noise)] = noise
    vfs.put(path, bytes(content))
    store = open_store(vfs)
    assert store.damaged_ranges() == ()
    assert store.log_end == end
    model.check(store)
    model.send(store, [("T", 0, 120)])
    model.check(store)
    store.close()
