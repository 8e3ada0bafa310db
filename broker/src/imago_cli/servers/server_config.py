"""Reads a server's configuration file and environment, for commands."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from imago_broker.config import BrokerConfig, ConfigError
from imago_broker.config.sources import load_with_ini
from imago_broker.core.metaq.metaq_filters import check_config
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_config(path: Path | None) -> BrokerConfig:
    """Return the configuration of a file (none: defaults) under the environment's settings.

    UsageError names the file, the key, the reason and the cure.
    """
    text = ""
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise unreadable(path, error) from error
        except UnicodeDecodeError as error:
            raise CommandUsageError(f"--config {path}: is no text in UTF-8") from error
    try:
        config = load_with_ini(text, os.environ, check_config)
    except ConfigError as error:
        raise CommandUsageError(f"{path or 'environment'}: {error}") from error
    try:
        check_config(config)
    except ValueError as error:
        raise CommandUsageError(f"{path or 'environment'}: {error}") from error
    return config


def unreadable(path: Path, error: OSError) -> CommandUsageError:
    """The error of a configuration that cannot be read: where it was looked for, what helps."""
    place = "" if path.is_absolute() else f" (looked in {Path.cwd()})"
    cure = "name a file that you may read"
    if isinstance(error, FileNotFoundError):
        cure = f"imago config defaults > {shlex.quote(path.name)} writes one with every setting"
    return CommandUsageError(f"--config {path}: {error.strerror}{place}", cure=cure)


def listener_ports(config: BrokerConfig) -> Iterator[tuple[str, int]]:
    """Ports that one broker with this configuration binds, each with its name for people."""
    if config.metaq.enabled:
        yield "MetaQ", config.metaq.port
    if config.rocketmq.enabled:
        yield "RocketMQ", config.rocketmq.port
        yield "RocketMQ's fast port", config.fast_port
    if config.grpc_port >= 0:
        yield "RocketMQ's SDKs", config.grpc_port
    if config.namesrv.enabled:
        yield "the name service", config.namesrv.port
    if config.admin.enabled:
        yield "the admin interface", config.admin.port
    for listener in config.listeners:
        for protocol, port in listener.ports.items():
            yield f"{protocol} of listener {listener.name}", port
