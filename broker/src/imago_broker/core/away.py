"""What is not in an answer about the whole cluster: the shards that nobody leads now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.explain import explain
from imago_broker.model.registry.cluster import shard_name

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import ClusterView


class AwayShard(NamedTuple):
    """A shard whose messages, groups and lags nobody can tell of."""

    shard: int
    since_ms: int | None
    """Since when it is known to be away, at the latest; None: that is not known."""
    why: str

    def to_json(self) -> dict[str, object]:
        """As lists carry it."""
        return {"shard": shard_name(self.shard), "since": self.since_ms, "why": self.why}


def away(view: ClusterView) -> list[AwayShard]:
    """Return all shards that are away, ascending, each with the reason."""
    return [
        AwayShard(shard, view.away_since.get(shard), _reason(view, shard)) for shard in view.away()
    ]


def _reason(view: ClusterView, shard: int) -> str:
    said = explain(view, shard)
    return f"{said.why}; it waits for {said.waits_for}" if said.waits_for else said.why
