"""The metrics of a broker's part in its shard, made again whenever Prometheus asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.metrics import Sample

if TYPE_CHECKING:
    from imago_broker.app.member.shard_member import ShardMember
    from imago_broker.replication.links.port import RefusedPeers
    from imago_broker.service.role import RoleState


BEHIND: Final = "For how long a follower has lacked any log bytes"


def shard_samples(member: ShardMember, role: RoleState, refused: RefusedPeers) -> list[Sample]:
    """Return the samples of this moment; none before the member takes part."""
    if member.shell is None:
        return []
    counters = member.counters
    made = [
        _gauge("epoch", "Epoch of the shard's mastership that counts.", role.current.epoch),
        _gauge(
            "ready", "1 while this member's role in its shard is settled.", not member.problems()
        ),
        _gauge(
            "equal_failures",
            "Equal failures of this member one after the other; from 3 on it is stalled.",
            member.failures.last.count if member.failures.last is not None else 0,
        ),
        _counter("sent_bytes", "Log bytes sent to followers.", counters.bytes_sent),
        _counter(
            "catch_up_bytes",
            "Log bytes sent to followers out of files, as they were far behind.",
            counters.bytes_caught_up,
        ),
        _counter("taken_bytes", "Log bytes taken from leaders.", counters.bytes_taken),
        _counter("healed", "Damaged ranges healed by others.", member.repairs.healed),
        _counter(
            "not_healed", "Answers of other members that healed no damage.", member.repairs.failed
        ),
    ]
    for cause, count in sorted(counters.elections.items()):
        made.append(
            _counter(
                "elections",
                "Elections of a master that this member has seen.",
                count,
                ("cause", cause),
            )
        )
    for reason, count in sorted(refused.count.items()):
        made.append(
            _counter(
                "refused",
                "Members whose connections for log bytes were refused.",
                count,
                ("reason", reason),
            )
        )
    for each in member.shard_status().followers:
        label = ("member", each.uuid)
        made += [
            _gauge(
                "follower_connected",
                "1 while a follower is connected to this master.",
                each.connected,
                label,
            ),
            _gauge("follower_lag_bytes", "Log bytes that a follower lacks.", each.lag_bytes, label),
            _gauge("follower_lag_seconds", f"{BEHIND}, in seconds.", each.lag_ms / 1000, label),
            _gauge("follower_lag_ms", f"{BEHIND}; use the seconds.", each.lag_ms, label),
        ]
    return made


def _gauge(name: str, text: str, value: float, *labels: tuple[str, str]) -> Sample:
    return Sample(f"imago_shard_{name}", text, lambda: value, "gauge", labels)


def _counter(name: str, text: str, value: float, *labels: tuple[str, str]) -> Sample:
    return Sample(f"imago_shard_{name}", text, lambda: value, "counter", labels)
