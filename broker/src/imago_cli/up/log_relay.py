"""Copies what is appended to log files to standard error, and keeps the files small.

Every line says whose it is: several processes tell the same of themselves. Children write into
their files directly: a terminal or a pipe that nobody reads may hold up this thread, never a
broker. In the background standard error is a file of its own, which gets no copies.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILE_BYTES_MAX = 32 << 20
_CHUNK = 1 << 16
_POLL_SECONDS = 0.2
_LAST_SECONDS = 2.0


class LogRelay:
    """One thread over the log files of all children."""

    def __init__(
        self, paths: Sequence[Path], own: Sequence[Path] = (), *, bytes_max: int = FILE_BYTES_MAX
    ) -> None:
        """`own` is where standard error goes, if that is a file to be kept small as well."""
        self._copies = not own
        self._paths = [*paths, *own]
        self._bytes_max = bytes_max
        self._at = {path: path.stat().st_size if path.exists() else 0 for path in self._paths}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-relay", daemon=True)

    def start(self) -> None:
        """Begin with what is appended from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Copy the rest and end; a reader that does not read is not waited for."""
        self._stop.set()
        self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self._copy_all()
        self._copy_all()

    def _copy_all(self) -> None:
        for path in self._paths:
            try:
                if self._copies:
                    self._copy(path)
                self._shorten(path)
            except OSError:
                # The terminal or the file is gone: nothing is left to copy to or from.
                continue

    def _copy(self, path: Path) -> None:
        if not path.exists():
            return
        who = f"{path.stem}: ".encode()
        with path.open("rb") as file:
            file.seek(self._at[path])
            while chunk := file.read(_CHUNK):
                # A line that is still being written is left for the next time, if there is one.
                whole = chunk.rfind(b"\n") + 1
                if not whole and (self._stop.is_set() or len(chunk) == _CHUNK):
                    whole = len(chunk)
                if not whole:
                    return
                self._at[path] += whole
                file.seek(self._at[path])
                lines = chunk[:whole].splitlines(keepends=True)
                os.write(sys.stderr.fileno(), b"".join(who + line for line in lines))

    def _shorten(self, path: Path) -> None:
        """Start the file anew; its former content becomes `<name>.1`.

        The child goes on with the file it has open, in append mode, so it is emptied in place.
        """
        if path.exists() and path.stat().st_size > self._bytes_max:
            path.with_name(f"{path.name}.1").write_bytes(path.read_bytes())
            os.truncate(path, 0)
            self._at[path] = 0
