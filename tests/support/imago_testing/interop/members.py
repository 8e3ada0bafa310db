"""The brokers of a running `imago up`, as the one who kills them sees them."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping

_ASK_SECONDS_MAX = 5.0
_SETTLES_SECONDS_MAX = 90.0


@dataclass(frozen=True, slots=True)
class Member:
    """One broker; its process changes, its place and its ports do not."""

    shard: str
    replica: int
    admin: str
    pid_path: Path

    @property
    def pid(self) -> int:
        """Its process now; 0: none."""
        try:
            return int(self.pid_path.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        os.kill(self.pid, number)

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Ask the admin interface; None when nothing answers there."""
        request = urllib.request.Request(
            self.admin + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_ASK_SECONDS_MAX) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{path}: {error.code} {error.read()!r}") from error
        except OSError:
            return None


class Members:
    """All brokers, shard by shard."""

    def __init__(self, ready: Mapping[str, Any]) -> None:
        """`ready`: the line that `imago up` prints when it serves."""
        self.shards: dict[str, list[Member]] = {}
        for broker in ready["brokers"]:
            name = broker["data"].rpartition("/")[2]
            pid_path = Path(ready["data"]) / "run" / f"{name}.pid"
            member = Member(broker["shard"], broker["replica"], broker["admin"], pid_path)
            self.shards.setdefault(member.shard, []).append(member)

    def master(self, shard: str) -> Member | None:
        """The member that says it leads, in the highest epoch."""
        led = [(each["epoch"], member) for member, each in self._told(shard) if _leads(each)]
        return max(led, key=lambda pair: pair[0])[1] if led else None

    def in_sync(self, shard: str) -> int:
        """How many members the master counts as in sync; 0: there is no master."""
        return max(
            (len(each["inSync"]) for _, each in self._told(shard) if _leads(each)), default=0
        )

    def settled(self, least: int) -> None:
        """Wait until every shard has a master with so many members in sync, itself one of them."""

        def whole() -> bool:
            return all(self.in_sync(shard) >= least for shard in self.shards)

        wait_until(
            whole,
            seconds_max=_SETTLES_SECONDS_MAX,
            what=f"{least} members in sync in each shard",
            poll=0.2,
        )

    def until_restarted(self, member: Member, before: int) -> None:
        """Wait until the supervisor has replaced the process that a member had."""
        wait_until(
            lambda: member.pid not in (0, before) and member.ask("/admin/v1/status") is not None,
            seconds_max=_SETTLES_SECONDS_MAX,
            what=f"{member.shard} replica {member.replica} has been started again",
            poll=0.2,
        )

    def told(self) -> list[str]:
        """Return what every member says of itself."""
        return [
            f"{shard} replica {member.replica}: {json.dumps(member.ask('/admin/v1/status'))}"
            for shard, members in self.shards.items()
            for member in members
        ]

    def _told(self, shard: str) -> list[tuple[Member, dict[str, Any]]]:
        told = [(member, member.ask("/admin/v1/status")) for member in self.shards[shard]]
        return [(member, each) for member, each in told if each is not None]


def _leads(status: Mapping[str, Any]) -> bool:
    return str(status["role"]) == "master"
