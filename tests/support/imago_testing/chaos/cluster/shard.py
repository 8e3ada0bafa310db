"""A whole cluster of one shard: ZooKeeper servers and brokers, each on a machine of its own."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from imago_testing.chaos.cluster.closing import Closed
from imago_testing.chaos.cluster.ensemble import Ensemble
from imago_testing.chaos.cluster.knobs import build
from imago_testing.chaos.cluster.members import Member, Sizes
from imago_testing.chaos.cluster.network import Network
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.chaos.drained import DrainedShard

BROKERS = ["b0", "b1", "b2"]
MORE = ["d0", "d1"]
"""The machines of more shards, which come and go."""
MORE_SESSION_MS = 10_000
"""Of their sessions: a busy machine may not take from them the only member they have."""
MORE_SEGMENT_BYTES = 4 << 20
"""Of their files: what a full disk would take first is not in the file that is written."""
SERVERS = ["z0", "z1", "z2"]
TICK_MS = 500
SETTLES_SECONDS_MAX = 180.0
"""In which every member is in sync again once nothing is broken any more."""
_OK = 200
_HANDS_OVER_SECONDS_MAX = 90.0
_RESTART_SECONDS = 1.0
"""Between the end of a member and its next start."""


class ApartError(Exception):
    """A shard that nobody disturbs is not whole again in time; says what each member says."""


class Shard:
    """Three brokers and three ZooKeeper servers on one switch. Use it as a context."""

    def __init__(
        self,
        folder: Path,
        *,
        session_ms: int,
        sizes: Sizes | None = None,
        closes: bool = False,
    ) -> None:
        """`closes`: all ports speak TLS, members to each other too, and clients need rights."""
        self._folder, self.session_ms = folder, session_ms
        self._closes = closes
        self.closed: Closed | None = None
        self._sizes = sizes or Sizes()
        self._ended_at: dict[str, float] = {}
        self._undo = ExitStack()
        self._seconds = 0
        self.exits: list[str] = []
        """Members that ended by themselves, with their exit codes."""
        self.idle: list[str] = []
        """Faults that found nothing to be done to."""
        self.drains: list[DrainedShard] = []
        """Second shards that were drained and removed, and what clients had of them."""
        self.under = "start"
        """What is done to the shard."""

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.network = undo.enter_context(Network([*BROKERS, *SERVERS, *MORE]))
            # From here on this thread, and those it starts, live on the switch.
            self.network.enter_hub()
            self.zookeeper = Ensemble(
                self.network, SERVERS, self._folder / "zookeeper", tick_ms=TICK_MS
            )
            undo.callback(self.zookeeper.close)
            self.zookeeper.start()
            library = self._library = build(self._folder)
            if self._closes:
                self.closed = Closed(self._folder, library)
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
                    sizes=self._sizes,
                    closed=self.closed,
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

    def one_more(self, number: int = 1) -> Member:
        """Return a broker of one more shard that was just started, with nothing on its disk."""
        self._seconds += 1
        name = MORE[number - 1]
        member = Member(
            name,
            self.network,
            self._folder / f"{name}-{self._seconds}",
            zookeeper=self.zookeeper.connect,
            session_ms=MORE_SESSION_MS,
            replicas=1,
            library=self._library,
            sizes=Sizes(segment=MORE_SEGMENT_BYTES),
            closed=self.closed,
            number=number,
        )
        self._undo.callback(member.close)
        member.start()
        member.wait()
        return member

    def statuses(self) -> dict[str, Any]:
        """What each member says of itself; members that say nothing are left out."""
        told = {member.name: member.ask("/admin/v1/status") for member in self.members}
        return {name: status for name, (code, status) in told.items() if code == _OK}

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
                why = f"with exit code {code}: {member.last_words()}"
                self.exits.append(f"{self.under}: {member.name} ended by itself {why}")
                self._ended_at[member.name] = time.monotonic()
            ended_at = self._ended_at.get(member.name)
            if ended_at is not None and time.monotonic() - ended_at >= _RESTART_SECONDS:
                del self._ended_at[member.name]
                member.start()

    def settled(self, *, seconds_max: float = SETTLES_SECONDS_MAX) -> float:
        """Wait until one member leads, every member is in sync and nothing is damaged.

        Return how many seconds that took; ApartError when it takes too long.
        """
        began = time.monotonic()
        try:
            wait_until(self._whole, seconds_max=seconds_max, what="the shard is whole", poll=0.2)
        except TimeoutError as error:
            raise ApartError(f"{error}: {self.outlines()}") from None
        return time.monotonic() - began

    def outlines(self) -> str:
        """Return in a line what each member says of itself."""
        told = self.statuses()
        return "; ".join(
            f"{each.name}: {_outline(told[each.name]) if each.name in told else each.disk_use()}"
            for each in self.members
        )

    def _whole(self) -> bool:
        self.revive()
        statuses = self.statuses()
        masters = [each for each in statuses.values() if each["role"] == "master"]
        return (
            len(statuses) == len(self.members)
            and len(masters) == 1
            and len(masters[0]["inSync"]) == len(self.members)
            and all(each["settled"] and not each["damaged"] for each in statuses.values())
        )

    def hand_over(self, member: Member) -> None:
        """Have a member lead, if it does not; ApartError when it cannot."""
        code, status = member.ask("/admin/v1/status")
        leader = self.leader_or_none()
        if leader is member:
            return
        if code != _OK or leader is None:
            raise ApartError(f"{member.name} cannot lead: {self.outlines()}")
        told = leader.ask(
            "/admin/v1/handover",
            method="POST",
            body={"target": status["uuid"]},
            seconds_max=_HANDS_OVER_SECONDS_MAX,
        )
        try:
            wait_until(
                lambda: self.leader_or_none() is member,
                seconds_max=_HANDS_OVER_SECONDS_MAX,
                what=f"{member.name} leads",
                poll=0.1,
            )
        except TimeoutError as error:
            raise ApartError(f"{error}; handover answered {told}") from None


def _outline(status: dict[str, Any]) -> str:
    """Return what matters of what a member says of itself, in one line."""
    damaged = [f"{each['from']}-{each['to']} {each['reason']}" for each in status["damaged"]]
    return (
        f"{status['role']} settled={status['settled']} ({status['waitsFor']}) "
        f"epoch={status['epoch']} inSync={len(status['inSync'])} log {status['logStart']} to "
        f"{status['logEnd']} watermark={status['highWatermark']} damaged={damaged}"
    )
