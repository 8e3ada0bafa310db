"""A storm of TLS handshakes on a port of this machine, as a process of its own.

    python -m bench.storm PORT [--kind endless|whole] [--addresses N] [--rate N] [--seconds N]

`endless`: each begins and never goes on. `whole`: each goes on to its end, then closes. Prints one
JSON line: how many a second were begun, ended, and refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import ssl
import sys
import time
from itertools import count

OPEN_MAX = {"endless": 600, "whole": 4000}
"""Connections at once; above, the oldest gives up: no storm waits for ever."""
READ_MAX = 16 << 10


class Caller:
    """One connection of the storm, and its handshake."""

    def __init__(self, context: ssl.SSLContext, address: str, port: int) -> None:
        self.socket = socket.socket()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setblocking(False)

    def go_on(self) -> bool:
        """Take what has come and answer it; return whether the handshake has ended.

        OSError: the broker has closed it.
        """
        with contextlib.suppress(BlockingIOError):
            found = self.socket.recv(READ_MAX)
            if not found:
                raise ConnectionResetError
            self._in.write(found)
        ended = True
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            ended = False
        if said := self._out.read():
            self.socket.sendall(said)
        return ended


class Storm:
    """All connections of one."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self._port, self._whole = chosen.port, chosen.kind == "whole"
        self._addresses = [f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(chosen.addresses)]
        self._open_max = OPEN_MAX[chosen.kind]
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._open: dict[int, Caller] = {}
        self._poll = select.epoll()
        self._numbers = count()
        self.begun = self.ended = self.refused = 0

    def begin(self) -> None:
        """Begin one more handshake."""
        address = self._addresses[next(self._numbers) % len(self._addresses)]
        self.begun += 1
        try:
            caller = Caller(self._context, address, self._port)
            caller.go_on()
        except OSError:
            self.refused += 1
            return
        number = caller.socket.fileno()
        self._open[number] = caller
        if self._whole:
            self._poll.register(number, select.EPOLLIN)
        if len(self._open) > self._open_max:
            self._close(next(iter(self._open)))

    def look(self, seconds: float) -> None:
        """Go on with those that have an answer; wait for one so long."""
        for number, _ in self._poll.poll(seconds):
            try:
                ended = self._open[number].go_on()
            except OSError:
                self.refused += 1
                self._close(number)
                continue
            if ended:
                self.ended += 1
                self._close(number)

    def _close(self, number: int) -> None:
        caller = self._open.pop(number)
        caller.socket.close()  # which takes it out of the poll, too


def main() -> int:
    """Run it, and say what it was."""
    parser = argparse.ArgumentParser(prog="bench.storm", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--kind", choices=sorted(OPEN_MAX), default="endless")
    parser.add_argument("--addresses", type=int, default=1)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5)
    chosen = parser.parse_args()
    storm, began = Storm(chosen), time.monotonic()
    while (passed := time.monotonic() - began) < chosen.seconds:
        due = storm.begun / chosen.rate - passed
        if due <= 0:
            storm.begin()
        storm.look(max(0.0, due))
    told = {"begun": storm.begun, "ended": storm.ended, "refused": storm.refused}
    print(json.dumps({key: round(value / passed) for key, value in told.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
