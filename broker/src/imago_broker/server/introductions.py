"""What a broker says first of a client whose requests it passes on: who that is, and from where.

Where access control is on, the new master would take a relayed connection for the former master's:
its address, and with TLS its certificate. So the relay introduces its client: the introduction
carries a keyed hash over the admin token, which every broker of the cluster has. It names the port
that it is for, so that no other broker takes it, and counts once and for some minutes. The new
master answers with one byte; then the client's requests follow.

The first byte begins no request of RocketMQ or MetaQ, and no TLS handshake. On a connection with
TLS, the introduction comes inside of it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import orjson

from imago_broker.model.access.users import MEMBER, Introduced

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_BYTE: Final = 0xF1
TAKEN: Final = b"\xf1"
"""The answer to an introduction that is taken."""
SIZE_MAX: Final = 2048
CLOCKS_DIFFER_MS_MAX: Final = 10 * 60_000
NUMBERS_MAX: Final = 100_000
"""Introductions of the last minutes that are remembered; above it none is taken."""
NUMBER_BYTES: Final = 16

_HEAD: Final = struct.Struct(">BH")
_HASH_SIZE: Final = hashlib.sha256().digest_size


class IntroductionError(Exception):
    """It is not taken."""


class Introductions:
    """Makes introductions for other brokers, and checks theirs."""

    def __init__(
        self,
        *,
        key: Callable[[], str],
        epoch_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`key`: the admin token at this moment; "": none, and nothing is made or taken."""
        self._key, self._epoch_ms, self._random_bytes = key, epoch_ms, random_bytes
        self._began_ms = epoch_ms()
        self._numbers: set[str] = set()
        self._in_order: deque[tuple[int, str]] = deque()

    def written(self, client: Introduced, target: str) -> bytes:
        """Return what introduces a client to the broker at `target`, HOST:PORT."""
        told = orjson.dumps(
            {
                "at": self._epoch_ms(),
                "number": self._random_bytes(NUMBER_BYTES).hex(),
                "user": client.user,
                "host": client.host,
                "port": client.port,
            }
        )
        signed = told + _hash(self._key(), target, told)
        return _HEAD.pack(FIRST_BYTE, len(signed)) + signed

    def of_member(self, target: str) -> bytes:
        """Return what says that a broker of the cluster asks in its own name."""
        return self.written(Introduced(MEMBER, "", 0), target)

    def read(self, data: bytes | bytearray, target: str) -> tuple[Introduced, int] | None:
        """Return who is introduced at the start of what came, and the size of that.

        None: it is not whole. IntroductionError: nobody is; what follows must not be served.
        """
        if len(data) < _HEAD.size:
            return None
        first, size = _HEAD.unpack_from(data)
        if first != FIRST_BYTE:
            raise IntroductionError("no introduction")
        if not _HASH_SIZE < size <= SIZE_MAX:
            raise IntroductionError(f"an introduction of {size} bytes")
        end = _HEAD.size + size
        if len(data) < end:
            return None
        told = bytes(data[_HEAD.size : end - _HASH_SIZE])
        key = self._key()
        wanted = _hash(key, target, told)
        if not key or not hmac.compare_digest(wanted, bytes(data[end - _HASH_SIZE : end])):
            raise IntroductionError("an introduction that no broker of ours has made for this port")
        return self._take(orjson.loads(told)), end

    def _take(self, told: dict[str, Any]) -> Introduced:
        at_ms, number, now_ms = told["at"], told["number"], self._epoch_ms()
        if abs(now_ms - at_ms) > CLOCKS_DIFFER_MS_MAX:
            raise IntroductionError("an introduction of another time: compare the clocks")
        if at_ms < self._began_ms:
            raise IntroductionError("an introduction from before this broker's start")
        while self._in_order and now_ms - self._in_order[0][0] > CLOCKS_DIFFER_MS_MAX:
            self._numbers.discard(self._in_order.popleft()[1])
        if number in self._numbers:
            raise IntroductionError("an introduction that was used already")
        if len(self._numbers) >= NUMBERS_MAX:
            raise IntroductionError(f"more than {NUMBERS_MAX} introductions in some minutes")
        self._numbers.add(number)
        # Until it is too old by its own time, which may be later than now.
        self._in_order.append((max(now_ms, at_ms), number))
        return Introduced(told["user"], told["host"], told["port"])


def _hash(key: str, target: str, told: bytes) -> bytes:
    said = b"\n".join((b"imago-introduction", target.encode(), told))
    return hmac.digest(key.encode(), said, "sha256")


def target_of(host: str, port: int) -> str:
    """Return the words by which a port is named in introductions for it."""
    return f"{host}:{port}"
