"""`imago namesrv`: RocketMQ's name service as a process of its own, over the cluster registry."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated

from imago_cli.exits import CommandError, CommandUsageError, Exit
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.servers.ready import announce
from imago_cli.servers.server_config import read_config

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from imago_broker.config import BrokerConfig
    from imago_broker.config.sections.security_sections import TlsSection
    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.namesrv.server import Serving
    from imago_broker.processors.rocketmq.exchange import Hook
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.server.listener import Listener
    from imago_broker.server.tls.tls_certificates import Certificates
    from imago_broker.shard_work.access_following import AccessFollower


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("namesrv", namesrv)


def namesrv(
    config: Annotated[
        Path | None, Option(help="TOML file; IMAGO__SECTION__KEY overrides it.")
    ] = None,
    ready_fd: Annotated[int, Option(hidden=True)] = -1,
) -> None:
    """Run RocketMQ's name service as a process of its own, until SIGTERM.

    It has no state: everything is in the registry that zookeeper.connect names, and any number of
    these processes give the same answers.
    """
    settings = read_config(config)
    if settings.zookeeper.connect == "none":
        raise CommandUsageError(
            "a name service of its own needs the registry: zookeeper.connect is 'none'",
            cure="set zookeeper.connect, or let the broker answer (namesrv.enabled = true)",
        )
    # Only now: a mistyped key is reported before half a second of imports.
    import uvloop

    from imago_broker.app.starting import configure_logging

    configure_logging(settings.log.level, settings.log.format)
    sys.exit(uvloop.run(_run(settings, ready_fd)))


async def _run(settings: BrokerConfig, ready_fd: int) -> int:
    from imago_broker.app.clock import SystemClock
    from imago_broker.app.coordination import make_coordinator
    from imago_broker.app.starting import unless
    from imago_broker.namesrv.server import run
    from imago_broker.namesrv.settings import NameServiceConfig
    from imago_broker.ports import CoordinatorConflictError, CoordinatorError

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    started: asyncio.Future[None] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    coordinator = make_coordinator(settings, b"")
    certificates = _certificates(settings.tls)
    hooks, follower = _guarded(settings, coordinator.view, certificates)

    async def serve(table: Table, host: str, port: int) -> Serving:
        serving = _NameServer(
            await _serve(settings, table, host, port, coordinator.view, certificates), follower
        )
        announce(ready_fd, {"pid": os.getpid(), "namesrv": serving.port})
        started.set_result(None)
        return serving

    running = loop.create_task(
        run(
            NameServiceConfig(host=settings.broker.bind, port=settings.namesrv.port),
            coordinator=coordinator,
            clock=SystemClock(),
            serve=serve,
            stop=stop,
            hooks=hooks,
        )
    )

    async def start() -> None:
        await asyncio.wait((running, started), return_when=asyncio.FIRST_COMPLETED)

    try:
        if not await unless(stop, start()):
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            return Exit.DONE
        return await running
    except CoordinatorConflictError as error:
        raise CommandUsageError(str(error)) from error
    except CoordinatorError as error:
        raise CommandError(
            f"zookeeper.connect: {error}", cure="see whether ZooKeeper runs: imago doctor"
        ) from error


class _NameServer:
    """The listening port, with what keeps the users that it knows."""

    def __init__(self, listener: Listener, follower: AccessFollower | None) -> None:
        self.port = listener.port
        self._listener, self._follower = listener, follower
        if follower is not None:
            follower.start()

    async def stop(self) -> None:
        if self._follower is not None:
            await self._follower.stop()
        await self._listener.stop()


def _guarded(
    settings: BrokerConfig, view: Callable[[], ClusterView], certificates: Certificates | None
) -> tuple[Sequence[Hook], AccessFollower | None]:
    """Return the check of each request, and what keeps the users that it knows."""
    if not settings.acl.enabled:
        return (), None
    from imago_broker.app.clock import SystemClock
    from imago_broker.app.copied_access import follow_access

    def peer_tls() -> ssl.SSLContext | None:
        if certificates is None or settings.tls.calls == "disabled":
            return None
        return certificates.contexts.client

    return follow_access(settings, view, SystemClock(), peer_tls)


async def _serve(
    settings: BrokerConfig,
    table: Table,
    host: str,
    port: int,
    view: Callable[[], ClusterView],
    certificates: Certificates | None,
) -> Listener:
    from imago_broker.app.ports.connection_limits import remoting_limits
    from imago_broker.app.ports.input_memory import input_budget, memory_limit
    from imago_broker.app.ports.member_addresses import MemberAddresses
    from imago_broker.app.ports.open_files import connections_that_fit, files_allowed, raise_limit
    from imago_broker.app.ports.tls import handshake_queue, secure
    from imago_broker.server.binding import cure_of
    from imago_broker.server.connection_places import Places
    from imago_broker.server.listener import Listener, ListenerLimits
    from imago_broker.server.remoting.remoting_server import RemotingServer
    from imago_broker.server.unfinished import InputGuard

    limits = ListenerLimits(connections_max=settings.limits.connections_max)
    raise_limit()
    places = Places(
        connections_that_fit(files_allowed(), 0),
        per_address_max=settings.limits.connections_per_address_max,
        is_member=MemberAddresses(view),
    )
    listener = Listener(host, port, limits=limits, places=places)
    budget = input_budget(settings, memory_limit())
    InputGuard(budget)
    server = RemotingServer(
        table=table,
        loop=asyncio.get_running_loop(),
        limits=remoting_limits(settings),
        input_budget=budget,
    )
    listener.serve(server.session)
    secure([listener], certificates, handshake_queue(settings.tls), settings.tls)
    try:
        listener.bind()
    except OSError as error:
        raise CommandUsageError(f"namesrv.port: {error.strerror}", cure=cure_of(error)) from error
    await listener.start()
    if certificates is not None:
        certificates.start()
    return listener


def _certificates(tls: TlsSection) -> Certificates | None:
    from imago_broker.app.ports.tls import load_certificates
    from imago_broker.errors import FatalError

    try:
        return load_certificates(tls)
    except FatalError as error:
        raise CommandUsageError(str(error)) from error
