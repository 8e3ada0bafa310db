"""The MetaQ client on plain blocking sockets."""

from __future__ import annotations

import os
import socket
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Self, TypeVar

from imago_client.blocking.faces import blocking, completed
from imago_client.blocking.metaq_transactions import LocalTransaction, XaResource
from imago_client.connections.reaching import ended, not_had
from imago_client.errors import ClientClosedError, RequestTimeoutError
from imago_client.metaq.client import MetaqClient as AsyncMetaqClient
from imago_client.metaq.introducing import introduce
from imago_client.metaq.values import FETCH_BYTES_MAX, MetaqConfig, PutResult, checked_response
from imago_client.tls import client_context
from imago_wire.errors import ProtocolError
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from imago_wire.text.commands import Request, Response

T = TypeVar("T")

_LINE_BYTES_MAX: Final = 4096
_READ_BYTES: Final = 1 << 18
_OPAQUE_MAX: Final = (1 << 31) - 2


class MetaqClient:
    """Puts and gets in the caller's thread. After a fork it opens its connections anew."""

    def __init__(self, servers: str | MetaqConfig) -> None:
        self.config = MetaqConfig.of(servers)
        self.connections = Sockets(self.config)
        self._face = AsyncMetaqClient(self.config, connections=self.connections)
        self._producer = self._face.producer()

    get = blocking(AsyncMetaqClient.get)
    partitions = blocking(AsyncMetaqClient.partitions)
    stats = blocking(AsyncMetaqClient.stats)
    close = blocking(AsyncMetaqClient.close)

    def send(
        self,
        topic: str,
        payload: bytes,
        *,
        attribute: str | None = None,
        server: str | None = None,
        partition: int | None = None,
    ) -> PutResult:
        """Put one message; without `server` the brokers take turns, each choosing the partition."""
        return completed(
            self._producer.send(
                topic, payload, attribute=attribute, server=server, partition=partition
            )
        )

    def transaction(self, *, server: str | None = None, timeout_s: int = 0) -> LocalTransaction:
        """Return a transaction for `with`, at one broker: `server`, or the first."""
        return LocalTransaction(self._face.transaction(server=server, timeout_s=timeout_s))

    def xa_resource(self, qualifier: str, *, server: str | None = None) -> XaResource:
        """Return one broker, `server` or the first, as a resource of a transaction manager."""
        return XaResource(self._face.xa_resource(qualifier, server=server))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Sockets:
    """The connections of one client, by address; its coroutines never suspend."""

    def __init__(self, config: MetaqConfig) -> None:
        self.config = config
        self.admission = self
        self._sockets: dict[str, _TextSocket] = {}
        self._process_id = os.getpid()
        self._closed = False

    def room(self, _size: int) -> AbstractAsyncContextManager[None]:
        """Let a put in: it is the only one."""
        return nullcontext()

    async def ask(
        self, address: str, make: Callable[[int], Request], *, timeout_s: float
    ) -> Response:
        """Ask one broker."""
        if self._closed:
            raise ClientClosedError
        if self._process_id != os.getpid():
            self._drop_all()  # the parent's sockets: using them would mix both conversations
            self._process_id = os.getpid()
        connection = self._sockets.get(address)
        if connection is None or not connection.is_usable():
            if connection is not None:
                connection.close()
            connection = self._sockets[address] = _TextSocket(address, self.config)
        return connection.ask(make, timeout_s)

    async def together(self, asked: Iterable[Coroutine[None, None, T]]) -> Sequence[T]:
        """Have them done one after the other."""
        return [await each for each in asked]

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._drop_all()

    def _drop_all(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()


class _TextSocket:
    """One socket, one request at a time."""

    def __init__(self, address: str, config: MetaqConfig) -> None:
        self._address, self._config = address, config
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection(
                (host.strip("[]"), int(port)), timeout=config.connect_timeout_s
            )
        except (OSError, UnicodeError) as error:
            waited_s = config.connect_timeout_s
            raise not_had(address, error, config, timeout_s=waited_s) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if (tls := client_context(config)) is not None:
            try:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host.strip("[]"))
            except OSError as error:
                self._socket.close()
                waited_s = config.connect_timeout_s
                raise not_had(address, error, config, timeout_s=waited_s, is_there=True) from error
        self._decoder = Decoder(line_bytes_max=_LINE_BYTES_MAX, body_bytes_max=4 * FETCH_BYTES_MAX)
        self._opaque = 0
        self._used_at = time.monotonic()
        try:
            introduce(address, config, self.ask)
        except BaseException:
            self.close()
            raise

    def is_usable(self) -> bool:
        idle_s = time.monotonic() - self._used_at
        return self._socket.fileno() >= 0 and idle_s <= self._config.idle_s_max

    def close(self) -> None:
        self._socket.close()

    def ask(self, make: Callable[[int], Request], timeout_s: float) -> Response:
        self._opaque = self._opaque % _OPAQUE_MAX + 1
        data = encode(make(self._opaque))
        deadline = time.monotonic() + timeout_s
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
            while True:
                command = self._decoder.next_command()
                if command is None:
                    self._read(deadline)
                elif (answer := checked_response(command)).opaque == self._opaque:
                    self._used_at = time.monotonic()
                    return answer
        except TimeoutError:
            self.close()
            raise RequestTimeoutError(self._address, timeout_s) from None
        except (OSError, ProtocolError) as error:
            self.close()
            raise ended(self._address, error, self._config) from error
        except BaseException:
            self.close()  # interrupted, perhaps inside a command
            raise

    def _read(self, deadline: float) -> None:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError(0, "the broker closed the connection")
        self._decoder.feed(data)
