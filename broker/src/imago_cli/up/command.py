"""`imago up`: a whole cluster of real processes on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated, Any

from imago_broker.config.loading import ENVIRONMENT_PREFIX
from imago_broker.server.binding import cure_of
from imago_cli.exits import CommandUsageError, Exit
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_json, print_line, print_table, role_name
from imago_cli.servers.java import find_java
from imago_cli.servers.zookeeper_server import ZooKeeperServer
from imago_cli.up import detached
from imago_cli.up import state as up_state
from imago_cli.up.access import use_token, with_token
from imago_cli.up.configs import CONFIGS, base_settings, config_path, write_configs
from imago_cli.up.log_relay import LogRelay
from imago_cli.up.plan import (
    HOST,
    NO_ZOOKEEPER,
    BrokerPlace,
    ClusterPlan,
    Present,
)
from imago_cli.up.protection import refuse_less
from imago_cli.up.roles import Roles
from imago_cli.up.state import DEFAULT_DATA
from imago_cli.up.supervisor import ProcessSpec, SupervisedProcess, while_all_live
from imago_log.disk.vfs import OTHERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imago_broker.config import BrokerConfig

logger = logging.getLogger(__name__)

_STOP_MARGIN_SECONDS = 5.0
_SAME_REQUEST_SECONDS = 1.0
"""A signal so soon after another is the same request: `timeout`, and whoever passes signals on to a
process of his own group, send each one twice."""


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("up", up)


def up(
    shards: Annotated[int | None, Option(help="Number of shards.", show_default="1")] = None,
    replicas: Annotated[
        int | None,
        Option(help="Members of each shard, one broker process each.", show_default="1"),
    ] = None,
    zookeeper: Annotated[
        str | None,
        Option(
            help="auto: from PySpark's jars; none: one broker without it; or HOST:PORT[,…].",
            show_default="auto",
        ),
    ] = None,
    data: Annotated[Path, Option(help="Folder for all files.")] = DEFAULT_DATA,
    cluster: Annotated[
        str | None, Option(help="Name of the cluster.", show_default="imago")
    ] = None,
    port_base: Annotated[
        int | None, Option(help="First port of a block; imago up binds no other.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", help="A broker's setting, as section.key=value. Repeatable."),
    ] = None,
    config: Annotated[
        Path | None,
        Option(help="TOML file of settings for every broker; --set counts more."),
    ] = None,
    metaq_ini: Annotated[
        Path | None, Option(help="MetaQ's server.ini: topics, partitions, policies.")
    ] = None,
    restart: Annotated[
        bool, Option("--restart/--no-restart", help="Restart processes that die.")
    ] = True,
    as_json: Annotated[
        bool, Option("--json", help="Print one line of JSON once all is ready.")
    ] = False,
    detach: Annotated[
        bool,
        Option(detached.DETACH, help="Return once all is ready; imago down stops it."),
    ] = False,
    in_background: Annotated[bool, Option(detached.IN_BACKGROUND, hidden=True)] = False,
) -> None:
    """Run a whole cluster of real processes on this machine, until SIGTERM, Ctrl-C or `imago down`.

    The same --data brings back the same cluster with its content; give the same --config and --set,
    too. If a process cannot start, the
    command names it, stops all others and fails. Afterwards it restarts a process that dies, with
    growing pauses, as often as necessary; the others continue.
    """
    os.umask(OTHERS)
    if detach:
        detached.start(data.absolute(), sys.argv[1:])
        return
    _log_to_stderr()
    with up_state.locked(data.absolute()), up_state.room(data.absolute()):
        plan = up_state.plan(
            data.absolute(),
            shards=shards,
            replicas=replicas,
            cluster=cluster,
            zookeeper=zookeeper,
            port_base=port_base,
        )
        base = base_settings(settings or [], metaq_ini, config)
        refuse_less(config_path(plan, next(iter(plan.places()))), base)
        base = with_token(base, data.absolute())
        use_token(base)
        configs = write_configs(plan, base)
        refuse_busy_ports(plan, next(iter(configs.values())).broker.bind)
        cluster_run = ClusterRun(
            plan, configs, restart=restart, as_json=as_json, in_background=in_background
        )
        code = asyncio.run(cluster_run.run())
    sys.exit(code)


def refuse_busy_ports(plan: ClusterPlan, bind: str) -> None:
    """UsageError that names the first port which somebody else has."""
    for what, port in plan.ports():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((bind, port))
            except OSError as error:
                raise CommandUsageError(
                    f"port {port}, for {what}, cannot be bound: {error.strerror}",
                    cure=cure_of(error, other="give another --port-base"),
                ) from error


class StopRequests:
    """Tells a second request to stop, which means at once, from a first that came twice."""

    def __init__(self) -> None:
        self._first: float | None = None

    def urgent(self, now: float) -> bool:
        """Note a request at this time (s); return whether somebody is tired of waiting."""
        if self._first is None:
            self._first = now
        return now - self._first >= _SAME_REQUEST_SECONDS


class ClusterRun:
    """The processes of one cluster, from the first start to the last stop."""

    def __init__(
        self,
        plan: ClusterPlan,
        configs: Mapping[BrokerPlace, BrokerConfig],
        *,
        restart: bool,
        as_json: bool,
        in_background: bool = False,
    ) -> None:
        self._in_background = in_background
        self._plan = plan
        self._configs = configs
        self._as_json = as_json
        self._stop_requests = StopRequests()
        server = list(self._zookeeper())
        self._first = [SupervisedProcess(spec, restart=restart) for spec in server]
        self._brokers = {
            place: SupervisedProcess(self._broker(place), restart=restart)
            for place in plan.places()
        }
        self._roles = Roles(plan, configs)
        names = [self._namesrv()] if plan.zookeeper != NO_ZOOKEEPER else []
        self._names = [SupervisedProcess(spec, restart=restart) for spec in names]

    async def run(self) -> int:
        """Start all, say so, keep them running until a signal, stop all in order."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, stopping)
        children = [*self._first, *self._names, *self._brokers.values()]
        own = [self._plan.data / detached.LOG] if self._in_background else []
        relay = LogRelay([child.spec.log_path for child in children], own)
        relay.start()
        try:
            if await self._started_before(stopping):
                up_state.remember(self._plan)
                self._say_ready()
                if self._in_background:
                    detached.is_ready()
                await self._keep(children, stopping)
        finally:
            await self._stop()
            relay.stop()
        return Exit.DONE

    async def _started_before(self, stopping: asyncio.Event) -> bool:
        """Start everything; False when a signal came first."""
        starting = asyncio.create_task(self._start())
        signalled = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait([starting, signalled], return_when=asyncio.FIRST_COMPLETED)
        finally:
            signalled.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return False
        starting.result()
        return True

    async def _start(self) -> None:
        # Whoever asks ZooKeeper before it serves is refused, or makes it complain of itself.
        others = [*self._names, *self._brokers.values()]
        await _start_all(self._first)
        await while_all_live(self._first, _start_all(others))
        await while_all_live([*self._first, *others], self._settle())

    async def _settle(self) -> None:
        """Return once clients find everything and each shard takes messages."""
        # Only now: with the client's code loaded meanwhile the brokers would start later.
        from imago_cli.up.names import wait_for_names

        configs = list(self._configs.values())
        host = local_address(configs[0].broker.bind)
        await wait_for_names(f"{host}:{self._plan.namesrv_port}", configs)
        await self._roles.wait()

    async def _keep(self, children: Sequence[SupervisedProcess], stopping: asyncio.Event) -> None:
        keepers = [asyncio.create_task(child.keep()) for child in children]
        try:
            await stopping.wait()
        finally:
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _stop(self) -> None:
        """Brokers while the registry still answers, then the name service, ZooKeeper last.

        Followers go first: so each shard's master is the last that has everything, and leads at
        once when the cluster is started again.
        """
        masters = await self._roles.masters()
        last = [child for place, child in self._brokers.items() if place in masters]
        others = [child for place, child in self._brokers.items() if place not in masters]
        for group in (others, last, self._names, self._first):
            await asyncio.gather(*(child.stop() for child in group))

    def _signalled(self, stopping: asyncio.Event) -> None:
        if self._stop_requests.urgent(asyncio.get_running_loop().time()):
            for child in [*self._brokers.values(), *self._names, *self._first]:
                child.kill()
        stopping.set()

    def _say_ready(self) -> None:
        host = next(iter(self._brokers.values())).ready["host"]
        present = {
            place: Present(child.pid, child.ready["replica"], self._roles.of(place))
            for place, child in self._brokers.items()
        }
        ready = self._plan.ready(host, present)
        if self._as_json:
            print_json(ready)
            return
        names = ["shard", "replica", "role", "MetaQ", "RocketMQ", "gRPC", "admin", "pid"]
        if serves_https(next(iter(self._configs.values()))):
            for broker in ready["brokers"]:  # tokens go there, and http is answered too
                broker["admin"] = broker["admin"].replace("http:", "https:")
        shown = [{**broker, "role": role_name(broker["role"])} for broker in ready["brokers"]]
        rows = [[broker[name.lower()] for name in names] for broker in shown]
        print_table(f"cluster {self._plan.cluster}", names, rows)
        print_line(f"name service {ready['namesrv']}, ZooKeeper {ready['zookeeper']}")
        if self._plan.port_base is not None:
            print_line(f"for other commands: {for_other_commands(ready)}")
        end = f"imago down --data {self._plan.data}" if self._in_background else "Ctrl-C"
        print_line(f"data and logs in {self._plan.data}; {end} stops everything")

    def _zookeeper(self) -> Iterator[ProcessSpec]:
        plan = self._plan
        if not plan.own_zookeeper:
            return
        server = ZooKeeperServer(folder=plan.data / "zookeeper", port=plan.zookeeper_port)
        command = server.command(find_java())
        server.write_config()
        yield self._spec("zookeeper", command, probe=server.serves)

    def _broker(self, place: BrokerPlace) -> ProcessSpec:
        config = self._configs[place]
        # A former master relays the clients that it still has, for a while after a handover.
        linger_seconds = config.replication.handover_linger_ms / 1000
        stop_seconds = config.broker.drain_seconds + linger_seconds + _STOP_MARGIN_SECONDS
        command = self._imago("broker", place.name)
        cure = ""
        if self._plan.replicas > 1:
            folder = self._plan.broker_data(place)
            cure = f"move {folder} away: the shard's other members fill a new one"
        return self._spec(place.name, command, stop_seconds=stop_seconds, damage_cure=cure)

    def _namesrv(self) -> ProcessSpec:
        return self._spec("namesrv", self._imago("namesrv", "namesrv"))

    def _imago(self, command: str, name: str) -> list[str]:
        config = self._plan.data / CONFIGS / f"{name}.toml"
        ours = [sys.executable, "-m", "imago_cli", command]
        return [*ours, "--config", str(config), "--ready-fd", "{ready_fd}"]

    def _spec(self, name: str, command: Sequence[str], **options: Any) -> ProcessSpec:
        plan = self._plan
        return ProcessSpec(
            name=name,
            command=command,
            log_path=plan.data / "logs" / f"{name}.log",
            pid_path=plan.data / "run" / f"{name}.pid",
            environment=child_environment(os.environ),
            **options,
        )


async def _start_all(children: Sequence[SupervisedProcess]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(child.start())
    except ExceptionGroup as failures:
        # The first to fail is the cause; the others were cut off because of it.
        raise failures.exceptions[0] from None


def for_other_commands(ready: Mapping[str, Any]) -> str:
    """Return what tells other commands where the cluster is; who leads is asked there."""
    return f"export IMAGO_BOOTSTRAP={ready['namesrv']} IMAGO_ADMIN={ready['brokers'][0]['admin']}"


def serves_https(config: BrokerConfig) -> bool:
    """Whether the admin interface answers https."""
    return bool(config.tls.certificate_file) and config.tls.admin != "disabled"


def local_address(bind: str) -> str:
    """Return an address of this machine at which a listener bound there is reached."""
    return HOST if bind in ("0.0.0.0", "::", "") else bind  # noqa: S104  compared, not bound


def child_environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without settings of brokers: files and command line alone count."""
    return {key: value for key, value in ours.items() if not key.startswith(ENVIRONMENT_PREFIX)}


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
