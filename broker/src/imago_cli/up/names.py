"""Asks the name service whether clients can find the whole cluster through it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_cli.clusters.admin_http import cluster_at
from imago_cli.exits import CommandError
from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_client.errors import NoRouteError, TryAgainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config import BrokerConfig
    from imago_broker.config.sections.security_sections import TlsSection

NEW_TOPICS_LIKE = "TBW102"
"""Topic whose route RocketMQ clients use for a topic that does not exist yet."""
SECONDS_MAX = 30.0
LOCAL = "127.0.0.1"
EVERY = ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound
_PAUSE_SECONDS = 0.05


async def wait_for_names(address: str, configs: Sequence[BrokerConfig]) -> None:
    """Return once the name service knows all brokers; CommandError names those it does not."""
    served = [config for config in configs if config.rocketmq.enabled]
    expected = {config.broker_name for config in served}
    if not expected:
        return
    missing = expected
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                missing = await asyncio.to_thread(_missing, address, served)
                if not missing:
                    return
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError as error:
        raise CommandError(
            f"the name service at {address} does not know {', '.join(sorted(missing))} "
            f"after {SECONDS_MAX:g} s",
            cure="see the logs below the data folder",
        ) from error


def _client_config(address: str, tls: TlsSection) -> ClientConfig:
    """Return how the name service is asked: with TLS where nothing else is served."""
    trusted = (tls.ca_file or tls.certificate_file) if tls.mode == "enforcing" else ""
    shown = trusted and tls.client_auth != "none"
    return ClientConfig(
        bootstrap=parse_addresses(address),
        tls_ca_file=trusted or None,
        tls_certificate_file=tls.certificate_file if shown else None,
        tls_key_file=tls.key_file if shown else None,
    )


def _cordoned(configs: Sequence[BrokerConfig]) -> set[str]:
    """Return brokers whose shards take no new topics, as the first that answers tells it."""
    for config in configs:
        bind = config.admin.bind or config.broker.bind
        if snapshot := cluster_at(LOCAL if bind in EVERY else bind, config.admin.port):
            shards = {shard["id"] for shard in snapshot["shards"] if shard["cordoned"]}
            return {one.broker_name for one in configs if one.broker.shard in shards}
    return set()


def _missing(address: str, served: Sequence[BrokerConfig]) -> set[str]:
    """Return brokers without an entry, or without one for topics yet to be made."""
    expected = {config.broker_name for config in served}
    creating = {c.broker_name for c in served if c.rocketmq.auto_create_topic}
    with Client(_client_config(address, served[0].tls)) as client:
        try:
            missing = expected - {shard.shard for shard in client.admin.shards()}
            if missing or not creating:
                return missing
            missing = creating - _offering(client)
        except TryAgainError:
            return expected
    return missing - _cordoned(served) if missing else missing


def _offering(client: Client) -> set[str]:
    """Return the brokers on which clients may make topics."""
    try:
        queues = client.pull_consumer("imago-up").queues(NEW_TOPICS_LIKE)
    except NoRouteError:
        return set()
    return {queue.shard for queue in queues}
