"""`imago operator`: run clusters on Kubernetes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import re
import socket
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated

from imago_cli.distribution import install, version
from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.servers.ready import announce

if TYPE_CHECKING:
    from imago_operator.main import Settings

PREFIX = "IMAGO_OPERATOR_"
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LEVELS = ("debug", "info", "warning", "error")
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
LOG_FORMATS = ("text", "json")


class _SentencesAsJson(logging.Formatter):
    """Lines with the keys of the brokers' ones; their code is not in the operator's image."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": "unnamed",
            "message": record.getMessage(),
            "fields": {},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _configure_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_SentencesAsJson() if form == "json" else logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("operator", operator)


def operator(
    namespaces: Annotated[
        str,
        Option(
            envvar=f"{PREFIX}NAMESPACES",
            help="Namespaces to operate, separated by commas; empty: all. With names it needs no"
            " cluster-wide right.",
        ),
    ] = "",
    lease_namespace: Annotated[
        str,
        Option(
            envvar=f"{PREFIX}LEASE_NAMESPACE",
            help="Namespace of the Lease; unless given, the operator's own.",
        ),
    ] = "",
    lease_name: Annotated[
        str,
        Option(
            envvar=f"{PREFIX}LEASE_NAME",
            help="Lease that elects one of several operators.",
        ),
    ] = "imago-operator",
    identity: Annotated[
        str,
        Option(
            envvar=f"{PREFIX}IDENTITY",
            help="Identity in the Lease; unless given, the host name and some letters.",
        ),
    ] = "",
    broker_image: Annotated[
        str,
        Option(envvar=f"{PREFIX}BROKER_IMAGE", help="Image of brokers, without a tag."),
    ] = "imago/broker",
    zookeeper_image: Annotated[
        str, Option(envvar=f"{PREFIX}ZOOKEEPER_IMAGE", help="Image of managed ZooKeepers.")
    ] = "zookeeper:3.9",
    spark_image: Annotated[
        str,
        Option(envvar=f"{PREFIX}SPARK_IMAGE", help="Image of pipelines, without a tag."),
    ] = "imago/spark-apps",
    listen: Annotated[
        str,
        Option(
            envvar=f"{PREFIX}LISTEN", help="Address of /healthz, /readyz and /metrics; port 0: any."
        ),
    ] = "0.0.0.0:8080",
    finalizer_release_after: Annotated[
        str,
        Option(
            envvar=f"{PREFIX}FINALIZER_RELEASE_AFTER",
            help="When to release a resource that is being deleted although no broker of its"
            " cluster answers.",
        ),
    ] = "15m",
    log_level: Annotated[
        str, Option(envvar=f"{PREFIX}LOG_LEVEL", help=f"One of {', '.join(LEVELS)}.")
    ] = "info",
    log_format: Annotated[
        str, Option(envvar=f"{PREFIX}LOG_FORMAT", help=f"One of {', '.join(LOG_FORMATS)}.")
    ] = "text",
    kubeconfig: Annotated[
        Path | None,
        Option(
            envvar=f"{PREFIX}KUBECONFIG",
            help="Kubeconfig; unless given, the pod's service account or KUBECONFIG.",
        ),
    ] = None,
    ready_fd: Annotated[int, Option(hidden=True)] = -1,
) -> None:
    """Run clusters on Kubernetes, until SIGTERM.

    Any number of these processes may run: one holds the Lease and works, the others wait for it.
    """
    if importlib.util.find_spec("kopf") is None:
        raise CommandUsageError("kopf is not installed", cure=install("operator"))
    if log_level not in LEVELS:
        raise CommandUsageError(f"--log-level {log_level}", cure=f"one of {', '.join(LEVELS)}")
    if log_format not in LOG_FORMATS:
        raise CommandUsageError(
            f"--log-format {log_format}", cure=f"one of {' or '.join(LOG_FORMATS)}"
        )
    _configure_logging(log_level, log_format)
    host, port = _address(listen)
    settings = _settings(
        kubeconfig,
        names=_namespaces(namespaces),
        lease=(lease_namespace, lease_name, identity or _own_name()),
        images=(broker_image, zookeeper_image, spark_image),
        listen=(host, port),
        release=finalizer_release_after,
    )
    sys.exit(_run(settings, ready_fd))


def _own_name() -> str:
    """Return a name that no other process has: two of one name would both hold the Lease."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


def _run(settings: Settings, ready_fd: int) -> int:
    import os

    from imago_operator.errors import OperatorError
    from imago_operator.main import StartError, run

    def tell(port: int) -> None:
        announce(ready_fd, {"pid": os.getpid(), "http": port})

    try:
        return asyncio.run(run(settings, tell))
    except StartError as error:
        raise CommandUsageError(str(error), cure=error.cure) from error
    except OperatorError as error:
        raise CommandUsageError(
            f"Kubernetes at {settings.credentials.server}: {error}",
            cure="see whether it is there, and that --kubeconfig names it",
        ) from error


def _settings(
    kubeconfig: Path | None,
    *,
    names: tuple[str, ...],
    lease: tuple[str, str, str],
    images: tuple[str, str, str],
    listen: tuple[str, int],
    release: str,
) -> Settings:
    from imago_operator.kube.credentials import CredentialsError, find
    from imago_operator.main import Settings
    from imago_operator.model.desired import OperatorInfo
    from imago_operator.runtime.lease import LeasePlace

    try:
        credentials = find(kubeconfig)
    except CredentialsError as error:
        raise CommandUsageError(str(error), cure=error.cure) from error
    namespace, lease_name, identity = lease
    broker, zookeeper, spark = images
    own = namespace or credentials.namespace
    return Settings(
        credentials=credentials,
        operator=OperatorInfo(
            version=version(),
            broker_image=broker,
            zookeeper_image=zookeeper,
            spark_image=spark,
            namespace=own,
        ),
        lease=LeasePlace(namespace=own, name=lease_name, identity=identity),
        namespaces=names,
        host=listen[0],
        port=listen[1],
        release_after_s=_seconds(release),
    )


def _namespaces(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in found:
        if not NAME.fullmatch(name):
            raise CommandUsageError(
                f"--namespaces: {name!r} is no name of a namespace",
                cure="list names with commas between, or leave it empty for all",
            )
    return found


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise CommandUsageError(f"--listen {text}", cure="give HOST:PORT, like 0.0.0.0:8080")
    return host.strip("[]"), int(port)


def _seconds(text: str) -> float:
    from imago_operator.spec.schema.values import Duration

    try:
        return Duration(text).seconds
    except ValueError as error:
        raise CommandUsageError(
            f"--finalizer-release-after: {error}", cure="give it like 15m"
        ) from error
