"""A port in front of another that keeps what goes through it, both ways."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Tap:
    """Listens on loopback, and connects whoever comes to a port there."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._heard: list[bytes] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def heard(self) -> bytes:
        """Return what went through, connections mixed, and forget it."""
        with self._lock:
            found, self._heard = b"".join(self._heard), []
        return found

    def close(self) -> None:
        """End all that goes through."""
        _end(self._listening)
        self._threads[0].join()
        for one in self._open:
            _end(one)
        for thread in self._threads:
            thread.join()
        for one in (self._listening, *self._open):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            try:
                called = socket.create_connection(("127.0.0.1", self._to), timeout=10)
            except OSError:
                caller.close()
                continue
            called.settimeout(None)
            self._open += caller, called
            for ways in ((caller, called), (called, caller)):
                self._threads.append(threading.Thread(target=self._pass_on, args=ways))
                self._threads[-1].start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while read := one.recv(65536):
                with self._lock:
                    self._heard.append(read)
                other.sendall(read)
        _end(one)
        _end(other)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
