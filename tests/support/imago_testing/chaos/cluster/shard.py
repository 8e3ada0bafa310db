"""A whole cluster of one shard: ZooKeeper servers and brokers, each on a machine of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from imago_testing.chaos.cluster.ensemble import Ensemble
from imago_testing.chaos.cluster.knobs import build
from imago_testing.chaos.cluster.members import Member
from imago_testing.chaos.cluster.network import Network
from imago_testing.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

BROKERS = ["b0", "b1", "b2"]
SERVERS = ["z0", "z1", "z2"]
TICK_MS = 500
_SETTLES_SECONDS_MAX = 90.0


class Shard:
    """Three brokers and three ZooKeeper servers on one switch. Use it as a context."""

    def __init__(self, folder: Path, *, session_ms: int) -> None:
        self._folder, self.session_ms = folder, session_ms
        self._undo = ExitStack()
        self.exits: list[str] = []
        """Members that ended by themselves, with their exit codes."""

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.network = undo.enter_context(Network([*BROKERS, *SERVERS]))
            # From here on this thread, and those it starts, live on the switch.
            self.network.enter_hub()
            self.zookeeper = Ensemble(
                self.network, SERVERS, self._folder / "zookeeper", tick_ms=TICK_MS
            )
            undo.callback(self.zookeeper.close)
            self.zookeeper.start()
            library = build(self._folder)
            self.members: list[Member] = []
            for name in BROKERS:
                member = Member(
                    name,
                    self.network,
                    self._folder / name,
                    zookeeper=self.zookeeper.connect,
                    session_ms=self.session_ms,
                    replicas=len(BROKERS),
                    library=library,
                )
                undo.callback(member.close)
                self.members.append(member)
            for member in self.members:
                member.start()
            for member in self.members:
                member.wait()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def statuses(self) -> dict[str, Any]:
        """What each member says of itself; members that say nothing are left out."""
        told = {member.name: member.ask("/admin/v1/status") for member in self.members}
        return {name: status for name, (code, status) in told.items() if code == 200}

    def leader(self) -> Member:
        """Return the member that leads, as the one with the highest epoch says."""
        found = self.leader_or_none()
        assert found is not None, f"nobody leads: {self.statuses()}"
        return found

    def leader_or_none(self) -> Member | None:
        masters = [
            (status["epoch"], name)
            for name, status in self.statuses().items()
            if status["role"] == "master"
        ]
        if not masters:
            return None
        _, name = max(masters)
        return next(member for member in self.members if member.name == name)

    def followers(self) -> list[Member]:
        """Return the members that do not lead."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def revive(self) -> None:
        """Start members again that ended by themselves, as a kubelet would."""
        for member in self.members:
            if member.pid and not member.alive:
                code = member.ended()
                self.exits.append(f"{member.name} ended by itself with exit code {code}")
                member.start()

    def settled(self, *, seconds_max: float = _SETTLES_SECONDS_MAX) -> None:
        """Wait until one member leads and every member is in sync."""

        def whole() -> bool:
            self.revive()
            statuses = self.statuses()
            masters = [each for each in statuses.values() if each["role"] == "master"]
            return (
                len(statuses) == len(self.members)
                and len(masters) == 1
                and len(masters[0]["inSync"]) == len(self.members)
            )

        try:
            wait_until(whole, seconds_max=seconds_max, what="every member is in sync", poll=0.2)
        except TimeoutError as error:
            logs = "\n".join(f"--- {each.name}\n{each.log_tail()}" for each in self.members)
            raise TimeoutError(f"{error}: {self.statuses()}\n{logs}") from None
