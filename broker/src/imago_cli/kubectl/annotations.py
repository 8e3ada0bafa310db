"""What is wrong with annotations that people set on a cluster: the operator passes over those."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PREFIX: Final = f"{names.GROUP}/"
OF_PEOPLE: Final = (
    names.ALLOW_DATA_LOSS,
    names.APPROVE,
    names.FENCED,
    names.FORCE_RENEW,
    names.FORCE_RENEW_CLIENTS_CA,
    names.OPERATED_BY,
    names.PAUSE,
    names.RESTART,
)
"""Those that the operator reads on an ImagoCluster."""


def remarks(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each annotation that has no effect, or whose time is over."""
    for name, value in sorted((cluster["metadata"].get("annotations") or {}).items()):
        if not name.startswith(_PREFIX):
            continue
        if name not in OF_PEOPLE:
            known = [one.removeprefix(_PREFIX) for one in OF_PEOPLE]
            near = difflib.get_close_matches(name.removeprefix(_PREFIX), known, n=1)
            meant = f"do you mean {_PREFIX}{near[0]}?" if near else f"it knows {', '.join(known)}"
            yield f"annotation {name}: the operator reads none of that name; {meant}"
        elif name == names.PAUSE and value != "true":
            yield f"annotation {name}={value} pauses nothing: only true does"
        elif name == names.ALLOW_DATA_LOSS:
            yield from _data_loss(value, cluster)


def _data_loss(value: str, cluster: Mapping[str, Any]) -> Iterator[str]:
    said = f"annotation {names.ALLOW_DATA_LOSS}={value}"
    shards = {str(one["id"]): one for one in cluster.get("status", {}).get("shards", ())}
    if value not in shards:
        known = f": {', '.join(shards)}" if shards else ""
        yield f"{said} names no shard: write the shard's number{known}"
    elif shards[value].get("master"):
        yield f"{said} stands although the shard has a master: remove it"
