"""Runs a ZooKeeper server out of the jars that PySpark brings along.

Of PySpark's several hundred jars a server needs a dozen; with only these on the class path it
starts in half a second and takes 100 MB.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imago_cli.distribution import install
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from imago_cli.servers.java import Java

_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "netty-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
)
_FLAGS_VARIABLE = "SERVER_JVMFLAGS"
"""More flags of the JVM, by the name that ZooKeeper's own scripts have for them."""
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_LOGGING_FILE = "log4j2.properties"
_SERVING_FILE = "serving"
_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c %m%n%xEx{short}
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
# Who connects while it starts makes it complain of its own unfinished start. So it says when it
# serves: this part is made last.
appender.serving.type = File
appender.serving.name = serving
appender.serving.fileName = ${sys:imago.serving}
appender.serving.append = false
appender.serving.layout.type = PatternLayout
appender.serving.layout.pattern = %m%n
logger.serving.name = org.apache.zookeeper.server.ContainerManager
logger.serving.level = info
logger.serving.additivity = false
logger.serving.appenderRef.serving.ref = serving
# One server is what was asked for.
logger.quorum.name = org.apache.zookeeper.server.quorum.QuorumPeerMain
logger.quorum.level = error
logger.factory.name = org.apache.zookeeper.server.ServerCnxnFactory
logger.factory.level = error
"""
_FILE_ALLOCATION_KIB = 4096
"""A log file grows in such steps; ZooKeeper's own 64 MiB are much for a laptop and for tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperServer:
    """One stand-alone server on this machine."""

    folder: Path
    port: int
    host: str = "127.0.0.1"
    tick_ms: int = 500
    """Sessions last from 2 to 120 ticks: brokers need 2 s or more, original clients ask 30 s."""
    heap_mb: int = 256

    def command(self, java: Java) -> list[str]:
        """Return the command line; `write_config` must have been called."""
        return [
            str(java.executable),
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j2.configurationFile={self.folder / _LOGGING_FILE}",
            f"-Dimago.serving={self._serving_path}",
            f"-Dzookeeper.preAllocSize={_FILE_ALLOCATION_KIB}",
            "-Dzookeeper.jmx.log4j.disable=true",
            *_more_flags(),
            "-cp",
            ":".join(map(str, class_path())),
            _MAIN,
            str(self.config_path),
        ]

    @property
    def config_path(self) -> Path:
        return self.folder / "zoo.cfg"

    def write_config(self) -> None:
        """Make the folder and the server's configuration."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": self.tick_ms,
            "minSessionTimeout": 2 * self.tick_ms,
            "maxSessionTimeout": 120 * self.tick_ms,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,mntr,stat,cons",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self.config_path.write_text(text)
        (self.folder / _LOGGING_FILE).write_text(_LOGGING)

    @property
    def _serving_path(self) -> Path:
        return self.folder / _SERVING_FILE

    def serves(self) -> bool:
        """Whether the server answers clients. It is not asked before it says that it serves."""
        try:
            told = self._serving_path.stat().st_size > 0
        except OSError:
            return False
        # What the run before has said is gone before this one listens: then nobody answers.
        return told and self.answers()

    def answers(self) -> bool:
        """Ask a server, which may still start, or be one of several."""
        return "Mode:" in four_letters("srvr", self.host, self.port)


def _more_flags() -> list[str]:
    try:
        return shlex.split(os.environ.get(_FLAGS_VARIABLE, ""))
    except ValueError as error:
        raise CommandUsageError(
            f"{_FLAGS_VARIABLE} cannot be read: {error}", cure="quote it as a shell wants it"
        ) from error


def class_path() -> list[Path]:
    """Return the jars that a server needs; UsageError when PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    jars = Path(folders[0]) / "jars" if folders else Path("pyspark/jars")
    found = [path for pattern in _JARS for path in sorted(jars.glob(pattern))]
    if not any(path.name.startswith("zookeeper-") for path in found):
        raise CommandUsageError(
            "there is no ZooKeeper here: it comes with PySpark, which is not installed",
            cure=f"{install('spark')}, or --zookeeper HOST:PORT, or --zookeeper none",
        )
    return found


def four_letters(command: str, host: str, port: int, *, seconds_max: float = 2.0) -> str:
    """Send one of ZooKeeper's four-letter commands; return its answer, "" without one."""
    try:
        with socket.create_connection((host, port), timeout=seconds_max) as connection:
            connection.settimeout(seconds_max)
            connection.sendall(command.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
    except OSError:
        return ""
