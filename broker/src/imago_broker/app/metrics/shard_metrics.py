"""The metrics of a broker's part in its shard, made anew whenever Prometheus asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.metrics import Sample

if TYPE_CHECKING:
    from imago_broker.app.member.shard_member import ShardMember
    from imago_broker.replication.links.port import RefusedPeers
    from imago_broker.service.role import RoleState


def shard_samples(member: ShardMember, role: RoleState, refused: RefusedPeers) -> list[Sample]:
    """Return the samples of this moment; none before the member takes part."""
    if member.shell is None:
        return []
    counters = member.counters
    made = [
        _gauge("epoch", "Epoch of the leadership that counts.", role.current.epoch),
        _gauge("ready", "1 while the role is settled.", not member.problems()),
        _gauge(
            "equal_failures",
            "Equal failures one after the other; from 3 on the member is stalled.",
            member.failures.last.count if member.failures.last is not None else 0,
        ),
        _counter("sent_bytes", "Log bytes sent to followers.", counters.bytes_sent),
        _counter("catch_up_bytes", "Of these, out of files.", counters.bytes_caught_up),
        _counter("taken_bytes", "Log bytes taken from leaders.", counters.bytes_taken),
        _counter("healed", "Damaged ranges healed by others.", member.repairs.healed),
        _counter("not_healed", "Answers that healed nothing.", member.repairs.failed),
    ]
    for cause, count in sorted(counters.elections.items()):
        made.append(_counter("elections", "Elections seen.", count, ("cause", cause)))
    for reason, count in sorted(refused.count.items()):
        made.append(_counter("refused", "Callers refused.", count, ("reason", reason)))
    for each in member.shard_status().followers:
        label = ("member", each.uuid)
        made += [
            _gauge("follower_connected", "1 while connected.", each.connected, label),
            _gauge("follower_lag_bytes", "Log bytes it lacks.", each.lag_bytes, label),
            _gauge("follower_lag_ms", "For how long it lacks any.", each.lag_ms, label),
        ]
    return made


def _gauge(name: str, text: str, value: float, *labels: tuple[str, str]) -> Sample:
    return Sample(f"imago_shard_{name}", text, lambda: value, "gauge", labels)


def _counter(name: str, text: str, value: float, *labels: tuple[str, str]) -> Sample:
    return Sample(f"imago_shard_{name}", text, lambda: value, "counter", labels)
