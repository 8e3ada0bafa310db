"""Requests of every code by chance: valid ones, and what is wrong with them, a little or wholly."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from imago_testing.peers.signing import GROUP, TOPIC, valid_request
from imago_testing.peers.wild import OF_PYTHON
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import FLAG_ONEWAY, RemotingCommand, SerializeType
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.remoting.peer import Language

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    Sign = Callable[[RemotingCommand, random.Random], None]

CODES: Final = tuple(int(code) for code in RequestCode)
BATCH: Final = 100
CONNECTION_REQUESTS: Final = 2000
"""Brokers close a connection on which a member that joined has been silent for two minutes."""
PATIENCE_S: Final = 120.0
"""An answer that has not come by then does not come: nothing may be held for so long."""
NAMES: Final = (
    TOPIC,
    GROUP,
    f"%RETRY%{GROUP}",
    f"%DLQ%{GROUP}",
    "TBW102",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "DefaultCluster_REPLY_TOPIC",
    "../../x",
    "a b",
    "",
    "\x00",
    "主题",
    "x" * 127,
    "x" * 300,
    "x" * 40_000,
)
NUMBERS: Final = (
    *(0, 1, -1, 2, 4, 8, 12, 31, 32, 33, 1000),
    *(2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 10**19),
)
LIGHT: Final = "%LMQ%a,%LMQ%b,,%LMQ%made-1,c"
WORDS: Final = (
    "x",
    "1e3",
    " 1",
    "+1",
    "0x1",
    "1.5",
    "NaN",
    "true",
    "TRUE",
    "null",
    "1" * 100,
    LIGHT,
)
WAITS: Final = {"suspendTimeoutMillis", "pollTime", "k"}
"""How long a request may be held: a storm waits for every answer."""
SHORT_WAITS: Final = ("0", "5", "20", "-1", "x", "")
PROPERTIES: Final = ("i", "properties")
KNOWN: Final = (
    *("TAGS", "KEYS", "DELAY", "TIMER_DELAY_MS", "TRAN_MSG", "PGROUP", "UNIQ_KEY", "WAIT"),
    *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"),
)


class RequestGenerator:
    """Makes requests; the same ones for the same seed."""

    def __init__(self, rng: random.Random, sign: Sign | None = None) -> None:
        """`sign` gives a request credentials, when all else of it is made."""
        self._rng = rng
        self._sign = sign
        self._serial = 0

    def next(self, opaque: int) -> RemotingCommand:
        """Return a request with this number."""
        rng, code = self._rng, self._code()
        ext, body = self._base(code)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 5))):
            self._change_field(ext)
        for name in WAITS & ext.keys():
            ext[name] = rng.choice(SHORT_WAITS)
        if "bornTime" in ext:
            ext["bornTime"] = "0"
        request = RemotingCommand(
            code=code,
            flag=FLAG_ONEWAY if rng.random() < 0.05 else 0,
            opaque=opaque,
            version=rng.choice((0, 63, 250, 401, 409, 479, 32_767)),
            language=rng.choice(list(Language)),
            ext=ext,
            body=self._body(body),
            serialize=self._form(code),
        )
        if self._sign is not None:
            self._sign(request, rng)
        return request

    def _code(self) -> int:
        if self._rng.random() < 0.03:
            return self._rng.choice((0, -1, 9999, 32_767, self._rng.randrange(1 << 15)))
        return self._rng.choice(CODES)

    def _form(self, code: int) -> SerializeType:
        fits = code < 1 << 15
        return self._rng.choice(list(SerializeType)) if fits else SerializeType.JSON

    def _base(self, code: int) -> tuple[dict[str, str], bytes]:
        if code not in CODES or self._rng.random() < 0.05:
            return {}, b""
        return valid_request(code, offset=self._rng.choice((0, 1, 200, 1 << 40)))

    def _change_field(self, ext: dict[str, str]) -> None:
        rng = self._rng
        name = rng.choice(list(ext)) if ext and rng.random() < 0.9 else f"unknown{rng.randrange(9)}"
        if rng.random() < 0.2:
            ext.pop(name, None)
        else:
            ext[name] = self._properties() if name in PROPERTIES else self._text()

    def _text(self) -> str:
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            return rng.choice(NAMES)
        if kind < 0.8:
            return str(rng.choice(NUMBERS))
        if kind < 0.9:
            return rng.choice(WORDS)
        self._serial += 1
        return f"made-{self._serial % 50}"

    def _properties(self) -> str:
        rng = self._rng
        count = rng.choice((0, 1, 2, 5, 5, 2000))
        return "".join(
            f"{rng.choice(KNOWN)}{rng.choice(('', str(at)))}\x01{self._text()[:200]}\x02"
            for at in range(count)
        )

    def _body(self, body: bytes) -> bytes:
        rng = self._rng
        kind = rng.random()
        if kind < 0.6:
            return body
        if kind < 0.8 and body:
            return json.dumps(self._changed(json.loads(body))).encode()
        if kind < 0.95:
            return rng.randbytes(rng.choice((0, 1, 3, 20, 200)))
        return rng.choice((b"{", b"[]", b"null", b"0", b"{}", b"x" * 100_000, b"[" * 3000))

    def _changed(self, value: Any) -> Any:
        """Return a body some part of which is another one."""
        rng = self._rng
        if isinstance(value, dict) and value and rng.random() < 0.8:
            name = rng.choice(list(value))
            return {**value, name: self._changed(value[name])}
        if isinstance(value, list) and value and rng.random() < 0.8:
            return [self._changed(value[0]), *value[1:]]
        return rng.choice((None, [], {}, "", self._text(), rng.choice(NUMBERS), 1.5, True))


async def storm(port: int, rng: random.Random, count: int, sign: Sign | None = None) -> None:
    """Send so many requests, one connection after another; AssertionError: one had no answer."""
    generator = RequestGenerator(rng, sign)
    while count > 0:
        some = min(count, CONNECTION_REQUESTS)
        await _storm_once(port, generator, some)
        count -= some


async def _storm_once(port: int, generator: RequestGenerator, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    decoder = FrameDecoder()
    try:
        for first in range(0, count, BATCH):
            batch = [generator.next(opaque) for opaque in range(first, min(first + BATCH, count))]
            writer.write(b"".join(map(encode_frame, batch)))
            await _answers(reader, writer, decoder, batch)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _answers(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    decoder: FrameDecoder,
    batch: Sequence[RemotingCommand],
) -> None:
    """Take the answers to all that want one; answer what the other side asks."""
    left = {one.opaque: one for one in batch if not one.is_oneway}
    try:
        async with asyncio.timeout(PATIENCE_S):
            while left:
                data = await reader.read(1 << 18)
                assert data, f"closed before it answered {_shown(left.values())}"
                decoder.feed(data)
                while (frame := decoder.next_frame()) is not None:
                    if frame.is_response:
                        asked = left.pop(frame.opaque, None)
                        _check(frame, asked)
                    elif not frame.is_oneway:
                        writer.write(encode_frame(frame.answer(0)))
    except TimeoutError:
        raise AssertionError(f"no answer to {_shown(left.values())}") from None


def _check(answer: RemotingCommand, asked: RemotingCommand | None) -> None:
    """What is wrong with a request is said in words of the protocol."""
    found = OF_PYTHON.search((answer.remark or "").encode())
    assert found is None, f"{answer.remark!r:.300} to {_shown([asked] if asked else [])}"


def _shown(requests: Any) -> str:
    return "; ".join(f"{one.code} {one.ext} {one.body[:200]!r}" for one in list(requests)[:3])
