"""The MetaQ client on plain blocking sockets."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Final, Self

from imago_client.blocking.metaq_transactions import LocalTransaction, XaResource
from imago_client.connections.reaching import ended, not_had
from imago_client.errors import (
    ClientClosedError,
    RequestTimeoutError,
    UsageError,
)
from imago_client.metaq.introducing import introduce
from imago_client.metaq.reading.bounds import bounds
from imago_client.metaq.values import (
    FETCH_BYTES_MAX,
    Fetched,
    MetaqConfig,
    MetaqError,
    Partition,
    PutResult,
    checked_response,
    get_command,
    put_command,
    read_get,
    read_offsets,
    read_put,
    read_stats,
    result_text,
)
from imago_client.tls import client_context
from imago_wire.errors import ProtocolError
from imago_wire.text.commands import Stats
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from imago_wire.text.commands import Request, Response

_LINE_BYTES_MAX: Final = 4096
_READ_BYTES: Final = 1 << 18
_OPAQUE_MAX: Final = (1 << 31) - 2


class MetaqClient:
    """Puts and gets in the caller's thread. After a fork it opens its connections anew."""

    def __init__(self, servers: str | MetaqConfig) -> None:
        self.config = MetaqConfig.of(servers)
        self._connections: dict[str, _TextSocket] = {}
        self._process_id = os.getpid()
        self._next = 0
        self._closed = False

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
        if partition is not None and server is None and len(self.config.servers) > 1:
            raise UsageError("partition: give the server too, every broker counts its own from 0")
        if server is None:
            self._next = (self._next + 1) % len(self.config.servers)
        address = server or self.config.servers[self._next]
        answer = self._ask(
            address,
            lambda opaque: put_command(topic, payload, attribute, partition, opaque),
            self.config.request_timeout_s,
        )
        return read_put(address, topic, answer)

    def transaction(self, *, server: str | None = None, timeout_s: int = 0) -> LocalTransaction:
        """Return a transaction for `with`, at one broker: `server`, or the first."""
        return LocalTransaction(self._ask, server or self.config.servers[0], timeout_s, self.config)

    def xa_resource(self, qualifier: str, *, server: str | None = None) -> XaResource:
        """Return one broker, `server` or the first, as a resource of a transaction manager."""
        return XaResource(self._ask, server or self.config.servers[0], qualifier, self.config)

    def get(
        self, partition: Partition, offset: int, *, group: str, size_max: int = 1 << 20
    ) -> Fetched:
        """Fetch stored messages once, from a byte position on."""
        answer = self._ask(
            partition.server,
            lambda opaque: get_command(partition, group, offset, size_max, opaque),
            self.config.fetch_timeout_s,
        )
        return read_get(partition, offset, answer)

    def partitions(
        self, topic: str, *, group: str | None = None
    ) -> dict[Partition, tuple[int, int]]:
        """Return the partitions that hold messages, on all brokers, with first and end position.

        `group`: as its reader each partition is asked, where a broker tells of all together only
        to who may see the cluster.
        """
        found: dict[Partition, tuple[int, int]] = {}
        for server in self.config.servers:
            found |= self._partitions_on(server, topic, group)
        return dict(sorted(found.items()))

    def _partitions_on(
        self, server: str, topic: str, group: str | None
    ) -> dict[Partition, tuple[int, int]]:
        try:
            return read_offsets(server, topic, self._stats(server, "offsets"))
        except MetaqError as error:
            if group is None or error.status != Status.FORBIDDEN:
                raise
        timeout_s = self.config.request_timeout_s
        return bounds(lambda make: self._ask(server, make, timeout_s), server, topic, group)

    def stats(self, server: str, item: str = "") -> dict[str, str]:
        """Return a broker's statistics."""
        return read_stats(self._stats(server, item))

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._drop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stats(self, server: str, item: str) -> str:
        answer = self._ask(
            server, lambda opaque: Stats(item, opaque), self.config.request_timeout_s
        )
        return result_text(server, answer)

    def _ask(self, address: str, make: Callable[[int], Request], timeout_s: float) -> Response:
        if self._closed:
            raise ClientClosedError
        if self._process_id != os.getpid():
            self._drop_all()  # the parent's sockets: using them would mix both conversations
            self._process_id = os.getpid()
        connection = self._connections.get(address)
        if connection is None or not connection.is_usable():
            if connection is not None:
                connection.close()
            connection = self._connections[address] = _TextSocket(address, self.config)
        return connection.ask(make, timeout_s)

    def _drop_all(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


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
