"""Small stores in real files, for what looks at them from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log import MessageStore
from imago_log.offline.check import Severity, check
from imago_testing.stores.in_memory import FakeClock, Model, folder_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN, FILES = "plain", "files"
"""A topic without, and one with MetaQ's own files."""


def open_files(folder: Path, clock: FakeClock | None = None) -> MessageStore:
    """Open a store with files of 4 KiB; background work runs inside the calls."""
    config = folder_config(folder, retention_bytes=0)
    return MessageStore.open(config, clock=clock or FakeClock(), threaded=False)


def fill(store: MessageStore, rounds: int, clock: FakeClock, model: Model | None = None) -> Model:
    """Append messages of both topics, in two queues each, and let the store do its rounds."""
    model = model or Model()
    for name, attributes in ((PLAIN, {}), (FILES, {"materialised": "true"})):
        if name not in store.topics():
            store.create_topic(name, {"name": name, "attributes": attributes})
    for number in range(rounds):
        places = [(name, queue_id, 40 + number) for name in (PLAIN, FILES) for queue_id in (0, 1)]
        model.send(store, places)
        store.put_meta([("offset", f"group@{PLAIN}/{number % 2}", number)])
        clock.now_ms += 400
        store.tick()
    return model


def make_files(folder: Path, rounds: int = 20, *, clean: bool = True) -> Model:
    """Make a store of several log files and stop it."""
    clock = FakeClock()
    store = open_files(folder, clock)
    model = fill(store, rounds, clock)
    store.close(clean=clean)
    return model


def errors(data: Path) -> list[tuple[str, int | None, str]]:
    """Return file, position and text of the errors."""
    return [
        (str(found.file.relative_to(data)), found.position, found.what)
        for found in check(data)
        if found.severity is Severity.ERROR
    ]


def flip(path: Path, at: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def every_file(data: Path) -> Iterator[Path]:
    not_covered = {"lock", "uuid", "views", "origin"}
    yield from sorted(
        path
        for path in data.rglob("*")
        if path.is_file() and path.name not in not_covered and path.suffix != ".new"
        if path.stat().st_size
    )
