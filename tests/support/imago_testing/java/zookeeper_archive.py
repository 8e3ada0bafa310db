"""An archive of the classes of a ZooKeeper server: with it a server starts in half the time.

Made once in an environment (`make test` does), used by every server that a test or an `imago up` of
a test starts. A JVM ignores an archive of other jars or of another Java, and loads classes as ever.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from kazoo.client import KazooClient

from imago_testing.processes.zookeeper import running_zookeeper

ARCHIVE: Final = Path(sys.prefix) / "zookeeper.jsa"
"""Beside the jars that it is made of: an environment has one of its own."""
_VARIABLE: Final = "SERVER_JVMFLAGS"


def use() -> None:
    """Have each server that this process and its children start use the archive, if it was made."""
    if ARCHIVE.exists():
        os.environ.setdefault(_VARIABLE, f"-XX:SharedArchiveFile={ARCHIVE}")


def make(archive: Path) -> None:
    """Have a server serve a client, and keep what classes it has loaded."""
    unfinished = archive.with_suffix(f".{os.getpid()}")
    os.environ[_VARIABLE] = f"-XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as folder, running_zookeeper(Path(folder)) as server:
        client = KazooClient(server.address)
        client.start(timeout=50)
        client.create("/made/here", b"", makepath=True)
        client.transaction().commit()
        client.stop()
        client.close()
    unfinished.rename(archive)


if __name__ == "__main__":
    make(ARCHIVE)
