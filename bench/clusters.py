"""A shard of several members under measurement, as `imago up` runs it."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness
from imago_testing.interop.members import Member, Members
from imago_testing.interop.targets import imago_up

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARD, TOPIC, QUEUES = "shard-0", "bench", 4


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard; its members are not pinned: there are more of them than cores."""

    members: Members
    master: Member
    """The member that led when everything was in sync."""
    metaq_port: int
    """The master's."""

    @property
    def followers(self) -> list[Member]:
        """The other members."""
        return [member for member in self.members.shards[SHARD] if member is not self.master]

    def load(self, **keys: int | str) -> dict[str, Any]:
        """Have the master take puts; CPU time is the master's."""
        return harness.load("put", self.metaq_port, pids=[self.master.pid], **keys)


@contextlib.contextmanager
def shard(members: int, level: str, *settings: str) -> Iterator[Shard]:
    """Run a shard with the topic `bench`; every member is in sync at first."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        chosen = [f"acknowledgement.level={level}", *settings]
        options = [word for setting in chosen for word in ("--set", setting)]
        with imago_up(Path(folder), shards=1, replicas=members, options=options, small=()) as ready:
            brokers = ready["brokers"]
            assert isinstance(brokers, list)
            found = Members(ready)
            found.settled(members)
            master = found.master(SHARD)
            if master is None:
                raise harness.BenchError(f"{SHARD} has no master")
            if master.ask(f"/admin/v1/topics/{TOPIC}", "PUT", {"queues": QUEUES}) is None:
                raise harness.BenchError("the master did not make the topic")
            [address] = [each["metaq"] for each in brokers if each["admin"] == master.admin]
            yield Shard(found, master, int(address.rpartition(":")[2]))
