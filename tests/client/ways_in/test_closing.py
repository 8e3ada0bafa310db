"""Connections over TLS are closed once, however their end comes about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_client import ClientConfig
from imago_client.metaq import MetaqConfig
from imago_client.metaq.connection import TextConnection
from imago_client.rocketmq.connection import Connection

if TYPE_CHECKING:
    import asyncio


class TlsTransport:
    """Forgets at a second `close` what it is of, as asyncio's does up to Python 3.11.3."""

    def __init__(self) -> None:
        self._protocol: list[str] | None = []

    @property
    def calls(self) -> list[str]:
        if self._protocol is None:
            raise AttributeError("'NoneType' object has no attribute '_abort'")
        return self._protocol

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def close(self) -> None:
        if self.is_closing():
            self._protocol = None
        else:
            self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def write(self, _: bytes) -> None:
        self.calls.append("write")


def made(connection: asyncio.Protocol) -> TlsTransport:
    transport = TlsTransport()
    connection.connection_made(cast("Any", transport))
    return transport


@pytest.mark.parametrize("lost", [False, True])
async def test_a_connection_may_be_closed_again(lost: bool) -> None:
    connection = Connection("a:1", ClientConfig.of("a:1"), lambda *_: None)
    transport = made(connection)
    connection.close()
    if lost:
        connection.connection_lost(None)
    connection.close()
    connection.close()
    connection.abort()
    assert transport.calls.count("close") == 1


async def test_one_of_metaq_whose_broker_makes_no_sense_is_closed_again() -> None:
    connection = TextConnection("a:1", MetaqConfig(servers=("a:1",), request_timeout_s=0.01))
    transport = made(connection)
    connection.data_received(b"\0" * 100_000)
    assert transport.calls == ["close"]
    connection.data_received(b"\0" * 100_000)
    await connection.close()
    assert transport.calls.count("close") == 1
    connection.connection_lost(None)
