"""The ports of one broker: bound together, closed together."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from imago_broker.app.access import check_token, introducing, make_introductions
from imago_broker.app.ports.admin_port import AdminPort
from imago_broker.app.ports.entrances import Entrance, ToldHosts
from imago_broker.app.ports.input_memory import FreedInput, input_budget, memory_limit
from imago_broker.app.ports.member_addresses import MemberAddresses
from imago_broker.app.ports.open_files import connections_that_fit, files_allowed, warn_if_few
from imago_broker.app.ports.tls import handshake_queue, load_certificates, member_tls, secure
from imago_broker.config.sections.relations import is_open
from imago_broker.core.budget import OutputBudget
from imago_broker.errors import ExitCode, FatalError
from imago_broker.replication.links.member_tls import member_uri
from imago_broker.replication.links.port import ReplicationPort
from imago_broker.server.binding import cure_of
from imago_broker.server.client_ports import ClientPorts, Door
from imago_broker.server.connection_places import Places
from imago_broker.server.listener import Listener, ListenerLimits
from imago_broker.server.tls.self_signed import SelfSigned
from imago_broker.server.unfinished import InputGuard

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
    from imago_broker.ports import Clock
    from imago_broker.server.tls.tls_certificates import Certificates
    from imago_broker.server.tls.tls_entry import TlsDoor

logger = logging.getLogger(__name__)


class Ports:
    """Every listener that the configuration may ask for; those that it does not stay unbound."""

    def __init__(
        self,
        config: BrokerConfig,
        view: Callable[[], ClusterView],
        record: Callable[[], BrokerRecord],
        clock: Clock,
    ) -> None:
        """`view`: the registry's, which says where members call from. `record`: our own there."""
        bind, rocketmq = config.broker.bind, config.rocketmq
        limits = ListenerLimits(connections_max=config.limits.connections_max)
        self._config, self.record = config, record
        self.introductions = make_introductions(config, clock)
        """What tells other brokers who asks, with access control; None: they need not know."""
        self.budget = OutputBudget(config.limits.output_bytes_total_max)
        """Of what the clients of all ports have not read yet."""
        self.input_budget = input_budget(config, memory_limit())
        """Of what has come of commands that are not whole, on all ports."""
        self._input_guard = InputGuard(self.input_budget)
        self.freed_input = FreedInput(self.input_budget)
        # Each gets the sessions of its protocol when the services that these need are there.
        self._files_allowed = files_allowed()
        places = self.places = Places(
            connections_that_fit(self._files_allowed, 0),
            per_address_max=config.limits.connections_per_address_max,
            is_member=MemberAddresses(view),
        )
        """Of the callers of all ports together."""
        listener = partial(Listener, bind, limits=limits, places=places)
        self.metaq, self.metaq_tls = map(
            listener, (config.metaq.port, max(0, config.tls.metaq_port))
        )
        self.rocketmq = listener(rocketmq.port)
        self.fast = listener(config.fast_port)
        self.grpc = listener(max(0, config.grpc_port))
        self.names = listener(config.namesrv.port)
        self.entrances = [Entrance(each, listener) for each in config.listeners]
        """Further listeners, whose clients are told other addresses."""
        self.told_hosts = ToldHosts(config.broker.listener_hosts_file)
        self.replication = ReplicationPort(bind, config.replication_port)
        """Of the other members; unbound where none are meant to be."""
        self.admin = AdminPort(
            config.admin.bind or bind,
            config.admin.port,
            limits,
            bounds=config.limits,
            budget=self.budget,
            places=places,
        )

        self.certificates: Certificates | None = None
        """Those of all listeners; None: there is no TLS."""
        self.handshakes = handshake_queue(config.tls)

    def _warn_if_open(self) -> None:
        """Say that there is no access control, where clients of other machines may come."""
        if self.wanted and is_open(self._config):
            logger.warning(
                "access_open bind=%s anyone who reaches the client ports may send, read and"
                " administer: set acl.enabled = true, or bind loopback (broker.bind); with"
                " security.allow_open = false no broker starts so",
                self._config.broker.bind,
            )

    def tell_started(self) -> None:
        """Write down that the broker serves, and where."""
        logger.info(
            "broker_started shard=%d metaq=%d rocketmq=%d grpc=%d namesrv=%d admin=%d data=%s",
            self._config.broker.shard,
            self.metaq_port,
            self.rocketmq_port,
            self.grpc_port,
            self.namesrv_port,
            self.admin_port,
            self._config.broker.data_dir,
        )

    @property
    def wanted(self) -> list[Listener]:
        """The listeners that the configuration asks for, the admin port aside."""
        config = self._config
        wanted = [self.metaq] if config.metaq.enabled else []
        if config.metaq.enabled and config.tls.metaq_port >= 0:
            wanted.append(self.metaq_tls)
        if config.rocketmq.enabled:
            wanted += [self.rocketmq, self.fast]
        if config.grpc_port >= 0:
            wanted.append(self.grpc)
        if config.namesrv.enabled:
            wanted.append(self.names)
        return wanted + [each for entrance in self.entrances for each in entrance.ports.values()]

    @property
    def metaq_port(self) -> int:
        """Bound port of the MetaQ listener; 0: not enabled."""
        return self.metaq.port if self._config.metaq.enabled else 0

    @property
    def rocketmq_port(self) -> int:
        """Bound port of the RocketMQ listener; 0: not enabled."""
        return self.rocketmq.port if self._config.rocketmq.enabled else 0

    @property
    def told_rocketmq_port(self) -> int:
        """Port for RocketMQ clients."""
        return self._config.rocketmq.advertised_port or self.rocketmq_port

    @property
    def fast_port(self) -> int:
        """Bound port of the second RocketMQ listener; 0: not enabled."""
        return self.fast.port if self._config.rocketmq.enabled else 0

    @property
    def grpc_port(self) -> int:
        """Bound port of RocketMQ 5's SDKs; 0: not enabled."""
        return self.grpc.port if self._config.grpc_port >= 0 else 0

    @property
    def namesrv_port(self) -> int:
        """Bound port of the name service; 0: not enabled."""
        return self.names.port if self._config.namesrv.enabled else 0

    @property
    def admin_port(self) -> int:
        """Bound port of the admin interface; 0: not enabled."""
        return self.admin.port if self._config.admin.enabled else 0

    def client_ports(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        append_now: Callable[[], None],
        answer_held: Callable[[], None],
    ) -> ClientPorts:
        """Return what holds and relays the clients' requests while the mastership moves."""
        doors = [
            Door(self.metaq, lambda record: record.metaq),
            # Nobody is told where another broker has this one.
            Door(self.metaq_tls, lambda _: 0),
            Door(self.rocketmq, lambda record: record.rocketmq),
            Door(self.fast, lambda record: record.fast),
            *(door for entrance in self.entrances for door in entrance.doors()),
        ]
        introductions = self.introductions
        if introductions is not None:
            # The port of SDKs relays by itself, and all the time that another member leads.
            sdks = [Door(self.grpc, lambda record: record.grpc)]
            sdks += [
                Door(entrance.ports["grpc"], entrance.grpc_of)
                for entrance in self.entrances
                if "grpc" in entrance.ports
            ]
            for door in (*doors, *sdks):
                door.listener.take_introductions(introducing(door, introductions, self.record))
        return ClientPorts(
            doors,
            loop=loop,
            append_now=append_now,
            answer_held=answer_held,
            certificates=self.certificates,
            introductions=introductions,
        )

    def bind(self, *, admin_alone: bool = False) -> None:
        """Take all ports without accepting yet; FatalError names the one that cannot be had."""
        warn_if_few(self._config.limits.connections_max, self.places.count_max)
        check_token(self._config)
        self._warn_if_open()
        self._secure()
        try:
            for listener in () if admin_alone else self.wanted:
                listener.bind()
            if self._config.admin.enabled:
                self.admin.bind()
            if self._config.replicates and not admin_alone:
                self.replication.bind()
        except OSError as error:
            raise FatalError(
                f"{error.strerror}; {cure_of(error)}",
                exit_code=ExitCode.USAGE,
            ) from error

    def _secure(self) -> None:
        """Load the certificate, if there is one; FatalError says why it cannot be used."""
        tls = self._config.tls
        if tls.mode == "disabled" or not tls.certificate_file:
            # SDKs ask for TLS unless they are told otherwise, and take any certificate.
            self.grpc.secure(SelfSigned(), self.handshakes, plain_too=True)
            for entrance in self.entrances:
                entrance.self_sign(SelfSigned(), self.handshakes)
        uri = member_uri(self._config.broker.cluster, self._config.broker.shard)
        self.certificates = load_certificates(tls, member=uri)
        if self.certificates is None:
            return
        self.certificates.start()
        secure(
            (self.rocketmq, self.fast, self.grpc, self.names),
            self.certificates,
            self.handshakes,
            tls,
        )
        for entrance in self.entrances:
            entrance.secure(self.certificates, self.handshakes, tls)
        self.metaq_tls.secure(self.certificates, self.handshakes, plain_too=False)
        self.replication.secure(member_tls(self.certificates, tls, uri=uri), self.handshakes)
        if tls.admin != "disabled":
            self.admin.secure(self.certificates, self.handshakes)

    def rocketmq_ways(self) -> tuple[ssl.SSLContext | None, ...]:
        """How this broker calls RocketMQ ports of others, one way after the other; None: no TLS.

        Where it serves without TLS, too, others may, or not: a cluster changes over one member
        after the other.
        """
        door = self.rocketmq.door
        if self.certificates is None or door is None:
            return (None,)
        client = self.certificates.contexts.client
        return (None, client) if door.plain_too else (client,)

    @property
    def peer_tls(self) -> ssl.SSLContext | None:
        """With what this broker asks the admin ports of others; None: without TLS."""
        if self.certificates is None or self._config.tls.calls == "disabled":
            return None
        return self.certificates.contexts.client

    @property
    def doors(self) -> list[TlsDoor]:
        """What connections with TLS come through, on all ports."""
        listeners = [self.metaq_tls, self.rocketmq, self.fast, self.names]
        listeners += [each for entrance in self.entrances for each in entrance.ports.values()]
        doors = [listener.door for listener in listeners] + [self.admin.door]
        return [door for door in doors if door is not None]

    def leave_files(self, log_bytes: int) -> None:
        """Leave a log of this size the files that it has open: all of its own."""
        log_files = log_bytes // self._config.store.segment_bytes_max + 2
        self.places.count_max = connections_that_fit(self._files_allowed, log_files)

    async def stop(self, *, drain_seconds: float) -> None:
        """Accept no more, answer what is in flight, close. May be called again."""
        self.replication.stop()
        if self.certificates is not None:
            self.certificates.stop()
        await asyncio.gather(
            self.admin.stop(),
            *(listener.stop(drain_seconds=drain_seconds) for listener in self.wanted),
        )
        self._input_guard.close()
