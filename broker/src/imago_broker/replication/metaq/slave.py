"""The asynchronous slave of an original master (`metaslave`), as the master sees it.

It asks as the original slave does: `offset` where a partition is new, then `get` from where the
copy ends, sooner when there was something. The master need not know of it. Unlike the original,
it sees new topics by itself, and does not go on where its copy and the master differ.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_broker.errors import BrokerError
from imago_broker.model import names
from imago_broker.model.metaq_slave import PartitionStatus, SlaveStatus
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.ports import CoordinatorError
from imago_broker.replication.metaq.copied import CopiedPartition, CopyError
from imago_broker.replication.metaq.master_settings import MasterSettings
from imago_client.config import parse_addresses
from imago_client.errors import ClientError
from imago_client.metaq.connection import TextConnections
from imago_client.metaq.values import MetaqConfig
from imago_log.errors import StoreError
from imago_wire.errors import ProtocolError, WrongError
from imago_wire.records.record import host_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.model.metaq_tree import MetaqMaster
    from imago_broker.ports import Clock, MetaqConsumers
    from imago_broker.replication.metaq.copied import Ask
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.text.commands import Request, Response

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
"""How often MetaQ's tree is asked whether the master or its topics have changed."""
RETRY_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 10.0
ASKED_AT_ONCE: Final = 16
"""Questions under way: each may bring a block of messages."""
DELAY_STEPS: Final = 10
"""A partition with nothing new is asked again after one, two … tenths of the longest delay."""
STEADY = (CopyError, ProtocolError, StoreError, BrokerError)
"""What goes wrong with one partition, while others go on."""


class NothingToCopyError(Exception):
    """There is nobody to copy now."""


class MetaqSlave:
    """Copies all partitions of the master with this shard's broker id."""

    def __init__(
        self,
        settings: LiveSettings[MetaqSection],
        *,
        consumers: MetaqConsumers,
        messages: MessageService,
        topics: TopicService,
        clock: Clock,
    ) -> None:
        section = settings.current
        self._settings = settings
        self._consumers, self._messages, self._topics = consumers, messages, topics
        self._clock = clock
        self._id = section.slave_id
        self._group = section.slave_group or f"meta-slave-group_{section.slave_id}"
        self._task: asyncio.Task[None] | None = None
        self._master = ""
        self._problem = "it has not begun"
        self._left_out: tuple[str, ...] = ()
        self._partitions: list[CopiedPartition] = []
        self._master_settings = MasterSettings()
        messages.copied_from = "an original master"

    def start(self) -> None:
        """Copy from now on, whenever there is a master."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Copy no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._master, self._problem = "", "it was stopped"

    def restart(self) -> None:
        """Connect again, and look again which topics there are and where they stand."""
        self.stop()
        self.start()

    def status(self) -> SlaveStatus:
        """Return how it stands."""
        return SlaveStatus(
            slave_id=self._id,
            group=self._group,
            master=self._master,
            problem=self._problem,
            left_out=self._left_out,
            config_problem=self._master_settings.problem,
            partitions=tuple(
                PartitionStatus(
                    topic=each.topic,
                    partition=each.number,
                    position=each.end,
                    messages=each.copied,
                    problem=each.problem,
                )
                for each in self._partitions
                if self._topics.get(each.topic) is not None
            ),
        )

    async def _run(self) -> None:
        while True:
            problem = "the master or its topics have changed"
            try:
                await self._follow()
            except (NothingToCopyError, CoordinatorError, ClientError) as error:
                problem = str(error)
            except Exception as error:
                logger.exception("metaq_slave_failed")
                problem = f"a fault of this broker: {error!r}"
            if problem != self._problem:
                logger.warning("metaq_slave_waits reason=%s", problem)
            self._master, self._problem = "", problem
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        """Copy one master until it or what it has is another."""
        master = await self._look()
        (address,) = parse_addresses(master.url.removeprefix("meta://").rstrip("/"), "its address")
        links = TextConnections(MetaqConfig(servers=(address,)))
        room = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(make: Callable[[int], Request]) -> Response:
            async with room:
                return await links.ask(address, make, timeout_s=ANSWER_SECONDS)

        try:
            if self._settings.current.slave_sync_config:
                await self._master_settings.ask(ask, master.partitions)
            self._adopt(master, address)
            self._messages.copied_from = f"the original master {master.url}"
            copies = [self._copy(each, ask) for each in self._partitions]
            tasks = [asyncio.create_task(work) for work in (self._watch(master), *copies)]
            self._master, self._problem = master.url, ""
            logger.info("metaq_slave_copies master=%s partitions=%d", address, len(copies))
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await links.close()

    async def _look(self) -> MetaqMaster:
        if not self._messages.store.leading:
            raise NothingToCopyError("this member does not lead its shard: who does copies")
        master = await self._consumers.metaq_master()
        if master is None:
            raise NothingToCopyError("no master of this broker id is registered in MetaQ's tree")
        return master

    async def _watch(self, master: MetaqMaster) -> None:
        """Return when the master or its topics are others, or this member leads no more."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await self._look() != master or any(
                self._topics.get(each.topic) is None for each in self._partitions
            ):
                return

    def _adopt(self, master: MetaqMaster, address: str) -> None:
        """Make the master's topics that are missing here, and plan their partitions."""
        left_out, partitions = [], []
        known = {(each.topic, each.number): each.copied for each in self._partitions}
        for name, count in sorted(master.partitions.items()):
            try:
                self._make(name, count)
            except (BrokerError, StoreError, ValueError) as error:
                left_out.append(f"{name}: {error}")
                continue
            for number in range(count):
                made = CopiedPartition(
                    topic=name,
                    number=number,
                    group=self._group,
                    messages=self._messages,
                    clock=self._clock,
                    born_host=_born_host(address),
                )
                made.copied = known.get((name, number), 0)
                partitions.append(made)
        self._left_out, self._partitions = tuple(left_out), partitions

    def _make(self, name: str, count: int) -> None:
        if "*" in name or names.looks_own(name):
            raise WrongError("it is a pattern, or a name of this broker's own")
        old = self._topics.get(name)
        if old is not None and not old.dual:
            raise WrongError("the topic here is none of MetaQ's")
        topic = old or TopicConfig(name=name, read_queues=count, write_queues=count)
        if topic.queues < count:
            topic = replace(topic, read_queues=count, write_queues=count)
        topic = self._master_settings.of(topic)
        if topic != old:
            self._topics.create_or_update(topic)

    async def _copy(
        self,
        partition: CopiedPartition,
        ask: Ask,
    ) -> None:
        """Copy one partition for ever; what is wrong with it alone holds up no other."""
        begun, steps = False, 0
        while True:
            grown = False
            try:
                if not begun:
                    await partition.begin(ask)
                    begun = True
                grown = await partition.fetch(ask)
                partition.problem = ""
            except STEADY as error:
                self._note(partition, str(error))
                begun = False
            except KeyError:
                return  # the topic was deleted here: all is read again
            steps = 0 if grown else min(steps + 1, DELAY_STEPS)
            delay_ms = self._settings.current.slave_delay_ms_max * steps / DELAY_STEPS
            await asyncio.sleep(delay_ms / 1000)

    def _note(self, partition: CopiedPartition, problem: str) -> None:
        if problem != partition.problem:
            logger.warning(
                "metaq_slave_partition topic=%s partition=%d problem=%s",
                partition.topic,
                partition.number,
                problem,
            )
        partition.problem = problem


def _born_host(address: str) -> bytes:
    """Return the master's address as records hold it; zeros for a name."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = "0.0.0.0"  # noqa: S104  noted, not bound
    return host_bytes(host, int(port))
