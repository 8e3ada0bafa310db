"""A data folder and everything in it is for its owner alone."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from imago_log import MessageStore
from imago_testing.stores.in_memory import FakeClock, Model, folder_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def use(folder: Path) -> None:
    store = MessageStore.open(folder_config(folder), clock=FakeClock())
    if "T" not in store.topics():
        store.create_topic("T", {})
        store.set_materialised("T")
    Model().send(store, [("T", 0, 300)] * 30)
    store.tick()
    store.close()


def modes(folder: Path) -> set[tuple[bool, int]]:
    found = [folder, *folder.rglob("*")]
    assert len(found) > 15
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in found}


def test_nobody_else_reaches_what_a_store_writes(tmp_path: Path) -> None:
    use(tmp_path / "data")
    assert modes(tmp_path / "data") == {(True, 0o700), (False, 0o600)}


def test_a_folder_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "data", tmp_path / "not ours"
    use(folder)
    outside.write_text("linked to")
    outside.chmod(0o644)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (folder / "config" / "link").symlink_to(outside)
    use(folder)
    (folder / "config" / "link").unlink()
    assert modes(folder) == {(True, 0o700), (False, 0o600)}
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
