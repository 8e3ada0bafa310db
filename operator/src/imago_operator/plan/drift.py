"""What somebody else has changed of an object that we have applied.

Kubernetes keeps account of who says what: a field that anybody else gives another value, or takes
away, is no longer among ours. So nothing is compared with defaults or with what others add (the
annotation of a restart, a port): a field of a manifest that is not ours any more has drifted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model import names
from imago_operator.model.actions import Drift

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_operator.model.state import OwnedObject

Fields = Mapping[str, Any]
Step = str | Mapping[str, Any]
"""A key, or what tells an item of a list from the others."""
SHOWN_MAX: Final = 80
KEYS_MAX: Final = 1024
"""Keys of items that are read once for all looks: ports, containers, volumes."""
UNTRACKED: Final = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"))


def drifted(manifest: Mapping[str, Any], child: OwnedObject) -> tuple[Drift, ...]:
    """Return the fields of a manifest that are not as we applied them; none where nobody knows."""
    if not child.managed:
        return ()
    mine = next((fields for who, fields in child.managed if who == names.MANAGER), {})
    return tuple(
        Drift(
            path=_told(path),
            found=_shown(child.live, path),
            wanted=_shown(manifest, path),
            by=_whose(child, path),
        )
        for path in _lost(manifest, mine)
        if _told(path) not in child.spared
    )


def foreign(drifts: Iterable[Drift]) -> tuple[Drift, ...]:
    """Return those that somebody else says otherwise.

    Of a manifest that is not what was applied last these alone have drifted: what nobody says is
    what it has anew.
    """
    return tuple(drift for drift in drifts if drift.by and drift.found != drift.wanted)


def managed_of(item: Mapping[str, Any]) -> tuple[tuple[str, Fields], ...] | None:
    """Return who says which fields of an object; ours are those that were applied."""
    entries = item["metadata"].get("managedFields")
    if entries is None:
        return None
    found = []
    for entry in entries:
        who, applied = str(entry.get("manager")), entry.get("operation") == "Apply"
        if who == names.MANAGER and not (applied and not entry.get("subresource")):
            who = f"{who} (not applied)"
        found.append((who, entry.get("fieldsV1") or {}))
    return tuple(found)


def _lost(
    value: Any, fields: Fields | None, at: tuple[Step, ...] = ()
) -> Iterator[tuple[Step, ...]]:
    """Yield the paths of what is in `value` and not in `fields`.

    Fields that are empty stand for a part that is ours as a whole, None for nothing of it.
    """
    if fields is None and not isinstance(value, Mapping):
        yield at
    elif at and fields is not None and not fields:
        return
    elif isinstance(value, Mapping):
        yield from _lost_entries(value, fields, at)
    elif isinstance(value, (list, tuple)):
        assert fields is not None
        yield from _lost_items(value, fields, at)


def _lost_entries(
    value: Mapping[str, Any], fields: Fields | None, at: tuple[Step, ...]
) -> Iterator[tuple[Step, ...]]:
    """Yield the same of an object; of what is empty no account is kept."""
    for key, part in value.items():
        if not part and (part is None or isinstance(part, (dict, list, tuple))):
            continue
        inner = None if fields is None else fields.get(f"f:{key}")
        if inner is not None and not inner:
            continue
        here = (*at, key)
        if here not in UNTRACKED:
            yield from _lost(part, inner, here)


def _lost_items(
    items: Sequence[Any], fields: Fields, at: tuple[Step, ...]
) -> Iterator[tuple[Step, ...]]:
    """Yield the same of a list whose items have keys; others are whole."""
    keyed = [(_key(key), part) for key, part in fields.items() if key[:2] == "k:"]
    for item in items if keyed else ():
        here = (*at, {name: item[name] for name in keyed[0][0] if name in item})
        part = next((part for key, part in keyed if _is(item, key)), None)
        if part is None:
            yield here
        else:
            yield from _lost(item, part, here)


@lru_cache(maxsize=KEYS_MAX)
def _key(written: str) -> Mapping[str, Any]:
    """Return by what an item of a list is told from the others: `k:{"name":"imago"}`."""
    found: Mapping[str, Any] = json.loads(written[2:])
    return found


def _is(item: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Whether an item of a list has a key; parts of it that have defaults may not be said."""
    return all(item[name] == value for name, value in key.items() if name in item)


def _whose(child: OwnedObject, path: tuple[Step, ...]) -> str:
    """Return who says a field now; empty: nobody does."""
    for who, fields in child.managed or ():
        node: Any = fields
        for step in path:
            if not isinstance(node, Mapping) or not node:
                break
            node = _part(node, step)
        if node is not None and who != names.MANAGER:
            return who
    return ""


def _part(fields: Fields, step: Step) -> Any:
    if isinstance(step, str):
        return fields.get(f"f:{step}")
    keyed = ((_key(key), part) for key, part in fields.items() if key[:2] == "k:")
    return next((part for key, part in keyed if _is(step, key)), None)


def _told(path: tuple[Step, ...]) -> str:
    """Return a path as people write it: spec.ports[port=9876].targetPort."""
    text = ""
    for step in path:
        if isinstance(step, str):
            text += f".{step}" if text else step
        else:
            text += f"[{','.join(f'{name}={value}' for name, value in step.items())}]"
    return text


def _shown(root: Any, path: tuple[Step, ...]) -> str:
    node = root
    for step in path:
        if isinstance(step, str):
            node = node.get(step) if isinstance(node, Mapping) else None
        else:
            items = node if isinstance(node, (list, tuple)) else ()
            node = next((item for item in items if _is(item, step)), None)
    if node is None:
        return "nothing"
    text = json.dumps(node, sort_keys=True, default=str)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
