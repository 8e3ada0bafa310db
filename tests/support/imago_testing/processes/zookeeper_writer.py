"""A client of ZooKeeper that never stops writing."""

from __future__ import annotations

import threading
from contextlib import suppress

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError

from imago_testing.processes.servers import wait_until

MARK = b"seen-by-who-listens"


class Writer:
    """A client that writes, and loses its session when there is no quorum for long."""

    def __init__(self, ports: list[int], session_s: float = 60) -> None:
        self.written, self.lost = 0, 0
        self._ends = threading.Event()
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        self._client = KazooClient(hosts, timeout=session_s)
        self._client.add_listener(self._changed)
        self._client.start(timeout=50)
        self._client.ensure_path("/written")
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _changed(self, state: str) -> None:
        self.lost += state == KazooState.LOST

    def _write(self) -> None:
        while not self._ends.is_set():
            # One that was written though its answer was lost is there.
            with suppress(KazooException):
                with suppress(NodeExistsError):
                    self._client.create(f"/written/{self.written}", MARK)
                self.written += 1

    def goes_on(self) -> None:
        reached = self.written + 20
        wait_until(lambda: self.written >= reached, what="writes go on")

    def stop(self) -> list[str]:
        """Return what it has written, as the ensemble says."""
        self._ends.set()
        self._thread.join()
        found: list[str] = self._client.get_children("/written")
        lost, self.lost = self.lost, 0
        self._client.stop()
        self._client.close()
        self.lost = lost
        return found
