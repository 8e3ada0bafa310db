"""Two clusters of real processes, and mirrors between them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PORTS = 40


@dataclass
class Pair:
    """Clusters A and B."""

    a: Up
    b: Up
    folder: Path

    @property
    def names(self) -> tuple[str, str]:
        return self.a.ready["namesrv"], self.b.ready["namesrv"]


@contextmanager
def started(folder: Path, name: str, *options: str) -> Iterator[Up]:
    (folder / name).mkdir()
    ports = ("--port-base", str(free_port_block(PORTS)))
    plain = options or ("--zookeeper", "none")
    with up(folder / name / "data", "--cluster", name.upper(), *ports, *plain) as running:
        yield running


class MirrorProcess:
    """`imago mirror run`."""

    def __init__(self, config: Path, port: int) -> None:
        self.config, self.port = config, port
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-m", "imago_cli", "mirror", "run", "--config", str(self.config)]
        with self.config.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def status(self) -> dict[str, Any]:
        """Return what it says; empty: it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=10) as got:
                found: dict[str, Any] = json.load(got)
        except OSError:
            return {}
        return found

    def reasons(self) -> set[str]:
        return {each["reason"] for each in self.status().get("troubles", ())}

    def wait_copied(self, topic: str) -> None:
        """Wait until nothing of a topic is missing."""

        def copied() -> bool:
            found = self.status().get("topics", {}).get(topic)
            return found is not None and found["lagMessages"] == 0

        wait_until(copied, what=f"{topic} copied", seconds_max=120)


def write_config(
    folder: Path,
    names: tuple[str, str],
    name: str,
    *,
    topics: str,
    groups: str = "[]",
    more: str = "",
) -> tuple[Path, int]:
    port = free_port_block(1)
    config = folder / f"{name}.toml"
    config.write_text(
        f'[mirror]\nname = "{name}"\ntopics = {topics}\ngroups = {groups}\n'
        f'listen = "127.0.0.1:{port}"\n{more}\n'
        f'[source]\nbootstrap = "{names[0]}"\n[target]\nbootstrap = "{names[1]}"\n'
    )
    return config, port


@contextmanager
def mirrored(
    folder: Path,
    names: tuple[str, str],
    name: str,
    *,
    topics: str,
    groups: str = "[]",
    more: str = "",
) -> Iterator[MirrorProcess]:
    config, port = write_config(folder, names, name, topics=topics, groups=groups, more=more)
    running = MirrorProcess(config, port)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()
