"""Brokers' answers as plain values. An answer that lacks something says less, never a guess."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from imago_operator.broker_rules.keys import KEYS
from imago_operator.model.state import (
    Probe,
    Refusal,
    RegistryView,
    RemainingContent,
    RestartCheck,
    Shard,
    ShardBroker,
    written,
)
from imago_operator.spec.cluster.cluster_status import DeletedForRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_operator.broker_rules.keys import Scalar


log = logging.getLogger(__name__)

T = TypeVar("T")


def read(how: Callable[..., T], *answers: Any) -> T | None:
    """Return what answers say; None for those that are of no broker of ours."""
    try:
        return how(*answers)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.warning("an answer that no broker gives: %r", error)
        return None


def registry_of(answer: Mapping[str, Any]) -> RegistryView:
    """Return the answer to GET /admin/v1/cluster."""
    shards = [_shard(said) for said in answer.get("shards", ())]
    return RegistryView(
        cluster_id=answer.get("clusterId") or None,
        connected=bool(answer.get("zooKeeperConnected")),
        operator_epoch=int(answer.get("operatorEpoch") or 0),
        feature_level=answer.get("featureLevel"),
        shards={shard.id: shard for shard in shards},
    )


def _shard(said: Mapping[str, Any]) -> Shard:
    return Shard(
        id=int(said["id"]),
        master=said.get("master"),
        epoch=said.get("epoch"),
        members=tuple(
            ShardBroker(
                uuid=member["uuid"],
                in_sync=bool(member.get("inSync")),
                lag_bytes=member.get("lagBytes"),
                damaged=bool(member.get("damaged")),
                problem=str(member.get("problem") or member.get("stalled") or ""),
                feature_level=int(member.get("featureLevel") or 1),
            )
            for member in said.get("members", ())
        ),
        cordoned=bool(said.get("cordoned")),
        drained=bool(said.get("drained")),
        waits_for=str((said.get("explain") or {}).get("waitsFor") or ""),
        deleted_for_room=_deleted_for_room(said.get("deletedForRoom")),
    )


def _deleted_for_room(said: Mapping[str, Any] | None) -> DeletedForRoom | None:
    if not said:
        return None
    return DeletedForRoom(
        start=int(said["from"]),
        end=int(said["to"]),
        messages=int(said["messages"]),
        at=written(datetime.fromtimestamp(int(said["at"]) / 1000, UTC)),
    )


def probe_of(
    status: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    check: Mapping[str, Any] | None,
    done: Mapping[str, Any] | None,
) -> Probe:
    """Return the answers of one broker: status, config, restart-check, restart-done."""
    return Probe(
        uuid=str(status["uuid"]),
        shard=int(str(status["shard"]).rpartition("-")[2]),
        role=str(status.get("role", "")),
        settled=bool(status.get("settled")),
        version=str(status.get("version", "")),
        config=_settings(config or {}),
        restart=RestartCheck(safe=bool(check.get("safe")), risks=tuple(check.get("risks", ())))
        if check
        else None,
        caught_up=bool(done and done.get("caughtUp")),
        full=(status.get("disk") or {}).get("writable") is False,
        used=_share(status.get("disk")),
        bucket_away=bool((status.get("tier") or {}).get("problem")),
        fenced=bool(status.get("fenced")),
        puts=_refusal(status.get("puts")),
        gets=_refusal(status.get("gets")),
        log=(int(status.get("epoch") or 0), int(status.get("logEnd") or 0)),
    )


def _share(disk: Mapping[str, Any] | None) -> float | None:
    said = (disk or {}).get("usedShare")
    return float(said) if said is not None else None


def _refusal(said: Mapping[str, Any] | None) -> Refusal | None:
    """Return whether clients are refused, and why; None: a broker that does not say."""
    if said is None:
        return None
    if said["accepted"]:
        return Refusal("")
    return Refusal("; ".join(map(str, said.get("reasons") or ())) or "the broker does not say why")


def _settings(answer: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the settings that may change while the broker runs."""
    found: dict[str, Scalar] = {}
    for item in answer.get("items", ()):
        key = KEYS.get(item.get("key", ""))
        if key is not None and key.dynamic and item.get("dynamic"):
            value = item["value"]
            found[item["key"]] = tuple(value) if isinstance(value, list) else value
    return found


def remaining_of(answer: Mapping[str, Any]) -> RemainingContent:
    """Return what is left in a shard: open queues, messages not read or not yet due."""
    queues = int(answer.get("openQueues") or 0)
    unread = int(answer.get("messages") or 0) + int(answer.get("delayedMessages") or 0)
    if not answer.get("done") and queues == unread == 0:
        unread = 1  # the broker knows of something that no number says
    return RemainingContent(writable_queues=queues, unread_messages=unread)
