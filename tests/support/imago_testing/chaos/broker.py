"""One broker process that is killed and started again on the same folder and ports."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from imago_testing.chaos.nursery import RUNS, Nursery
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import accepts, wait_until
from imago_wire.records.record import ScanStop, scan_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SERVES_SECONDS_MAX = 60
SEGMENT_BYTES = 2 << 20
_CONFIG = """\
[broker]
data_dir = "{data}"
bind = "127.0.0.1"
host = "127.0.0.1"
drain_seconds = 5
[metaq]
port = {metaq}
message_bytes_max = 1048576
[rocketmq]
port = {rocketmq}
grpc_port = {grpc}
message_bytes_max = 1048576
[namesrv]
port = {namesrv}
[admin]
port = {admin}
loopback_trusted = true
[store]
# Small files, so that many of them are begun and finished between two kills.
segment_bytes_max = {segment}
metaq_segment_bytes_max = 262144
disk_clean_ratio = 1.0
disk_force_ratio = 1.0
disk_full_ratio = 1.0
"""


class ChaosBroker:
    """A broker alone, without ZooKeeper. Ends with kill() or stop()."""

    def __init__(self, folder: Path) -> None:
        base = free_port_block(7)
        self._folder = folder
        self.data = folder / "data"
        self.metaq_port, self._admin_port, self.rocketmq_port = base, base + 2, base + 3
        self.grpc_port = base + 6
        self._config = folder / "broker.toml"
        self._config.write_text(
            _CONFIG.format(
                data=self.data,
                metaq=self.metaq_port,
                rocketmq=self.rocketmq_port,
                namesrv=base + 5,
                grpc=self.grpc_port,
                admin=self._admin_port,
                segment=SEGMENT_BYTES,
            )
        )
        self._log = folder / "broker.log"
        self._nursery = Nursery(self._config, self._log)
        self._pid = 0

    def start(self) -> None:
        """Start the process; it does not serve yet when this returns."""
        assert not self._pid
        self._pid = self._nursery.ask("start")

    def wait(self) -> None:
        """Return when it serves."""

        def serves() -> bool:
            assert self.alive, f"the broker ended early:\n{self.log_tail()}"
            return accepts(self._admin_port)

        wait_until(serves, seconds_max=_SERVES_SECONDS_MAX, what="the broker serves")

    @property
    def alive(self) -> bool:
        return bool(self._pid) and self._nursery.ask("poll") == RUNS

    def kill(self) -> None:
        """kill -9, and the process is gone."""
        self._signal(signal.SIGKILL)
        self.ended()

    def ended(self) -> int:
        """Wait for the end of the process and return its exit code."""
        self._pid = 0
        return self._nursery.ask("wait")

    def stop(self) -> int:
        """Stop it in order and return the exit code."""
        self._signal(signal.SIGTERM)
        return self.ended()

    def _signal(self, number: signal.Signals) -> None:
        assert self._pid > 0, "a broker runs"
        os.kill(self._pid, number)

    def close(self) -> None:
        """Whatever happened: leave no process behind."""
        self._nursery.close()

    def log_tail(self) -> str:
        return self._log.read_bytes()[-4000:].decode(errors="replace") if self._log.exists() else ""

    def put(self, path: str, body: Mapping[str, object]) -> None:
        """Change something over the admin interface."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._admin_port}/admin/v1/{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status in {200, 201}, answer.status

    def get(self, path: str) -> tuple[int, Any]:
        """Ask the admin interface; return the HTTP status and the answer."""
        url = f"http://127.0.0.1:{self._admin_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def log_file(self, log_offset: int) -> tuple[Path, int]:
        """Return the file of the log that holds an offset, and the position in it."""
        position = log_offset % SEGMENT_BYTES
        return self.data / "commitlog" / f"{log_offset - position:020d}", position

    def damage(self) -> str:
        """Read the log of the stopped broker record by record; return the first thing wrong."""
        files = sorted((self.data / "commitlog").iterdir())
        for path in files:
            base, data = int(path.name), path.read_bytes()
            scan = scan_records(data, base)
            last = path == files[-1] or not any(
                int(later.name) == base + len(data) for later in files
            )
            wanted = ScanStop.UNWRITTEN if last else ScanStop.BLANK
            if scan.stop is not wanted or (last and any(data[scan.end :])):
                return f"{path} at byte {scan.end}: {scan.stop.name} {scan.reason}"
        return ""
