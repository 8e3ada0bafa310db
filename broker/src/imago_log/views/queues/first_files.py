"""The first files of new queues, made by the worker: making folders and files is slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.disk.files import fatal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Background
    from imago_log.views.units.consume_queue import ConsumeQueue


class _Making:
    """One job of the worker. `done` is set last."""

    def __init__(self, vfs: Vfs, queues: Sequence[ConsumeQueue]) -> None:
        self._vfs, self.queues = vfs, queues
        self._paths = [files.first_path for queue in queues for files in queue.files()]
        self.done = False

    def run(self) -> None:
        try:
            for path in self._paths:
                with fatal("create", path):
                    self._vfs.make_folder(path.parent)
                    self._vfs.close(self._vfs.open(path, create=True))
        finally:
            self.done = True


class FirstFiles:
    """Makes the first files of queues, of some at a time."""

    def __init__(self, vfs: Vfs, background: Background) -> None:
        self._vfs, self._background = vfs, background
        self._making: _Making | None = None

    def make(self, queues: Sequence[ConsumeQueue]) -> None:
        """Start making the files of some queues, unless others are being made."""
        if queues and self._making is None:
            self._making = _Making(self._vfs, queues)
            self._background.submit_waiting(self._making.run)

    def made(self) -> Sequence[ConsumeQueue]:
        """Return the queues whose files have been made since the last call."""
        if self._making is None or not self._making.done:
            return ()
        queues, self._making = self._making.queues, None
        return queues

    def settle(self) -> None:
        """Wait until no file is being made: some folders are about to go."""
        if self._making is not None:
            self._background.drain()
