"""Machines on one switch, each a network namespace; any of them can be cut off from any other.

The namespaces lead nowhere: there is no route to the machine that runs the tests. A cut is silent
and goes one way, as a broken switch does it: packets to the other machine get a link address that
nobody has.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from imago_testing.chaos.cluster.lossy import LossyLine, in_thread, without_offloads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_testing.chaos.cluster.lossy import Line

_PREFIX = "imago-"
_NOBODY = "02:00:00:00:00:99"
_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")


class NetworkError(RuntimeError):
    """The namespaces cannot be made here; the text says what is missing."""


class Network:
    """A switch with machines. Use it as a context; the namespaces go with it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tag = f"{_PREFIX}{os.getpid()}-"
        self._hub = f"{self._tag}hub"
        self._numbers = {name: number for number, name in enumerate(names, start=11)}
        self._cuts: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        _remove_leftovers()
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def address(self, name: str) -> str:
        return f"10.77.0.{self._numbers[name]}"

    def inside(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on this machine."""
        return ["ip", "netns", "exec", self._tag + name, *command]

    def enter_hub(self) -> None:
        """Move this thread, and those it starts later, to the switch: it reaches every machine."""
        _enter(self._hub)

    @contextlib.contextmanager
    def bad_line(self, name: str, line: Line, seed: int) -> Iterator[LossyLine]:
        """Have a machine reach the switch, and be reached, by a bad line only."""
        hub, port = self._hub, f"port{self._numbers[name]}"
        near, far = f"near{self._numbers[name]}", f"far{self._numbers[name]}"
        self._ip("-n", hub, "link", "add", near, "type", "veth", "peer", "name", far)
        try:
            self._ip("-n", hub, "link", "set", near, "up")
            self._ip("-n", hub, "link", "set", port, "nomaster")
            self._ip("-n", hub, "link", "set", far, "master", "switch", "up")
            without_offloads(near)
            without_offloads(far)
            with LossyLine(port, near, line, seed) as lossy:
                yield lossy
        finally:
            self._ip("-n", hub, "link", "del", near)
            self._ip("-n", hub, "link", "set", port, "master", "switch")

    def _without_offloads(self, namespace: str, interface: str) -> None:
        def work() -> None:
            _enter(namespace)
            without_offloads(interface)

        in_thread(work)

    def cut(self, source: str, target: str) -> None:
        """Lose every packet from one machine to the other, in this direction."""
        self._cuts.add((source, target))
        address = self.address(target)
        link = ("lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
        self._ip("-n", self._tag + source, "neigh", "replace", address, *link)

    def part(self, ones: Iterable[str], others: Iterable[str]) -> None:
        """Cut both ways between two groups."""
        others = list(others)
        for one in ones:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def mend(self) -> None:
        """Undo every cut."""
        for source, target in self._cuts:
            address = self.address(target)
            self._ip("-n", self._tag + source, "neigh", "del", address, "dev", "eth0")
        self._cuts.clear()

    def _make(self) -> None:
        hub = self._hub
        self._ip("netns", "add", hub)
        self._ip("-n", hub, "link", "set", "lo", "up")
        self._ip("-n", hub, "link", "add", "switch", "type", "bridge")
        self._ip("-n", hub, "addr", "add", "10.77.0.1/24", "dev", "switch")
        self._ip("-n", hub, "link", "set", "switch", "up")
        for name, number in self._numbers.items():
            own, port = self._tag + name, f"port{number}"
            self._ip("netns", "add", own)
            self._ip("-n", own, "link", "set", "lo", "up")
            peer = ("peer", "name", "eth0", "netns", own)
            self._ip("-n", hub, "link", "add", port, "type", "veth", *peer)
            self._ip("-n", hub, "link", "set", port, "master", "switch", "up")
            self._ip("-n", own, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            self._ip("-n", own, "link", "set", "eth0", "up")
            self._without_offloads(own, "eth0")
            self._without_offloads(hub, port)
        self._without_offloads(hub, "switch")

    def _remove(self) -> None:
        for name in [*self._numbers, "hub"]:
            _delete(self._tag + name)

    @staticmethod
    def _ip(*words: str) -> None:
        try:
            done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise NetworkError("the command ip is missing: apt-get install iproute2") from error
        if done.returncode:
            cure = "network namespaces need root"
            raise NetworkError(f"ip {' '.join(words)}: {done.stderr.strip()} ({cure})")


def _enter(name: str) -> None:
    with (_NAMESPACES / name).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            raise NetworkError(f"setns: {os.strerror(ctypes.get_errno())}")


def _delete(namespace: str) -> None:
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def _remove_leftovers() -> None:
    """Remove what a run that was killed has left behind."""
    with contextlib.suppress(FileNotFoundError):
        for path in _NAMESPACES.glob(f"{_PREFIX}*-*"):
            pid = path.name.removeprefix(_PREFIX).split("-")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                _delete(path.name)
