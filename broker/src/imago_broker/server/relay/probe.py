"""Asking another broker whether it is the master of its shard, as any client could."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.server.introductions import TAKEN
from imago_wire.errors import WrongError
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from imago_broker.model.registry.cluster import BrokerRecord

PAUSE_SECONDS = 0.005
PATIENCE_SECONDS = 0.05
"""How long the first answer may take; each further one twice as long as the one before."""
ANSWER_BYTES_MAX = 1 << 20
_ASK_FRAME = encode_frame(RemotingCommand(code=RequestCode.GET_BROKER_CONFIG, opaque=1))


async def until_it_leads(
    record: BrokerRecord,
    tls: ssl.SSLContext | None = None,
    *,
    plain_too: bool = False,
    introduction: Callable[[], bytes] = bytes,
) -> None:
    """Return once the broker says that it is the master; OSError when it cannot be asked.

    Asked through a client port: where that answers as the master, requests are taken. Each time
    over a new connection, and again where no answer comes: as the master of before the last it may
    have passed the question on, to the one who asks and holds all requests, this one too.
    `tls`: what it is trusted by; with `plain_too` it is asked without first, and with TLS once it
    has refused that, as one does that serves TLS only. `introduction` makes what is said first,
    each time again: that a broker asks.
    """
    patience, way = PATIENCE_SECONDS, None if plain_too else tls
    while True:
        try:
            async with asyncio.timeout(patience):
                if await _says_so(record, way, introduction()):
                    return
        except TimeoutError:
            patience *= 2
        except OSError:
            if way is tls:
                raise
            way = tls
        await asyncio.sleep(PAUSE_SECONDS)


def port_to_ask(record: BrokerRecord) -> int:
    """Return the client port of a broker that is asked."""
    return record.rocketmq or record.metaq


async def _says_so(record: BrokerRecord, tls: ssl.SSLContext | None, said: bytes) -> bool:
    reader, writer = await asyncio.open_connection(record.host, port_to_ask(record), ssl=tls)
    try:
        return await _leads(reader, writer, said, framed=bool(record.rocketmq))
    finally:
        writer.close()


async def _leads(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes, *, framed: bool
) -> bool:
    try:
        if said:
            writer.write(said)
            if await reader.readexactly(1) != TAKEN:
                raise ConnectionError("it takes no introductions")
        if framed:
            writer.write(_ASK_FRAME)
            size = int.from_bytes(await reader.readexactly(4), "big")
            return b"brokerRole=ASYNC_MASTER" in await reader.readexactly(_checked(size))
        writer.write(b"stats  1\r\n")
        line = await reader.readuntil(b"\r\n")
        return b"slave false\r\n" in await reader.readexactly(_checked(int(line.split()[2])))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ConnectionError("closed by the other side") from error
    except (IndexError, ValueError) as error:
        raise ConnectionError(f"no answer of a broker: {error}") from error


def _checked(size: int) -> int:
    if not 0 <= size <= ANSWER_BYTES_MAX:
        raise WrongError(f"an answer of {size} bytes")
    return size
