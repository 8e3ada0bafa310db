"""Choosing the coordinator that the configuration asks for, and joining it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.app.member.identity import data_folder_uuid
from imago_broker.cluster.memory import memory_coordinator
from imago_broker.cluster.session.tree_access import TreeAccess
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.errors import ExitCode, FatalError
from imago_broker.ports import CoordinatorConflictError, CoordinatorError

if TYPE_CHECKING:
    from imago_broker.app.registration import Registration
    from imago_broker.config import BrokerConfig
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Coordinator

NONE = "none"


def make_coordinator(
    config: BrokerConfig, config_file: bytes, *, stores: bool = False
) -> Coordinator:
    """Return the coordinator of `zookeeper.connect`; kazoo is loaded only where it is used.

    `stores`: it is that of a broker. One that is alone makes its registry at each start, which
    shall not make it another cluster, so this has the name of its data folder. In ZooKeeper a new
    registry is a new cluster.
    """
    settings = CoordinatorConfig(
        cluster=config.broker.cluster,
        metaq_root=config.metaq.zk_root,
        metaq_broker_id_base=config.metaq.broker_id_base,
        metaq_slave=config.metaq.slave_id,
        metaq_hidden=config.metaq.gregor,
        metaq_config_checksum=zlib.crc32(config_file),
        session_timeout_ms=config.zookeeper.session_timeout_ms,
        connect_timeout_ms=config.zookeeper.connect_timeout_ms,
        relay_ms=config.replication.handover_linger_ms,
    )
    if config.zookeeper.connect == NONE:
        if stores:
            own_id = partial(data_folder_uuid, Path(config.broker.data_dir))
            settings = replace(settings, new_id=own_id)
        return memory_coordinator(settings)
    from imago_broker.cluster.zookeeper import zookeeper_coordinator  # noqa: PLC0415  30 MB saved

    return zookeeper_coordinator(settings, config.zookeeper.connect, tree_access(config))


def tree_access(config: BrokerConfig) -> TreeAccess:
    """Return how ZooKeeper is reached, and who we are there."""
    section = config.zookeeper
    return TreeAccess(
        ca_file=section.tls_ca_file,
        certificate_file=section.tls_certificate_file,
        key_file=section.tls_key_file,
        user=section.user,
        password_file=section.password_file,
        protect=section.protect,
        public_root=config.metaq.zk_root,
        public_shared=config.metaq.slave_id >= 0 or config.metaq.gregor,
    )


async def announce(registration: Registration, record: BrokerRecord) -> None:
    """Register this broker; FatalError says why that cannot be."""
    try:
        await registration.announce(record)
    except CoordinatorConflictError as error:
        raise FatalError(str(error), exit_code=ExitCode.USAGE) from error
    except CoordinatorError as error:
        raise FatalError(str(error), exit_code=ExitCode.UNEXPECTED) from error


async def join(coordinator: Coordinator, connect: str) -> None:
    """Start the coordinator of `connect`; FatalError says why that cannot be."""
    try:
        await coordinator.start()
    except CoordinatorConflictError as error:
        raise FatalError(str(error), exit_code=ExitCode.USAGE) from error
    except CoordinatorError as error:
        raise FatalError(
            f"zookeeper.connect: {connect}: {error}", exit_code=ExitCode.UNEXPECTED
        ) from error
