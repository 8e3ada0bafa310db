"""What has to change so that a cluster is as a file says. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from imago_cli.declared.wanted import ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_cli.declared.present import PresentState
    from imago_cli.declared.wanted import WantedState


class DeclaredChange(NamedTuple):
    """One topic or group that is to be made, changed or deleted."""

    kind: str
    name: str
    method: str
    """PUT or DELETE."""
    body: dict[str, Any]
    """What is sent: only what differs."""
    differences: tuple[tuple[str, object, object], ...]
    """Each setting with what it is and what it is to be; of a new thing it is None."""
    new: bool = False

    @property
    def path(self) -> str:
        """The admin route that makes the change."""
        return f"/admin/v1/{self.kind}s/{quote(self.name, safe='')}"

    def __str__(self) -> str:
        if self.method == "DELETE":
            return f"{self.kind} {self.name}: delete"
        told = [
            f"{key} {_text(after)}" if self.new else f"{key} {_text(before)} -> {_text(after)}"
            for key, before, after in self.differences
        ]
        return f"{self.kind} {self.name}: " + ", ".join(["new", *told] if self.new else told)


def changes(wanted: WantedState, present: PresentState, *, prune: bool) -> list[DeclaredChange]:
    """Return what has to change, in order; with `prune` also what the file does not have.

    Never what `imago export` leaves out of such a file.
    """
    found = [
        *_topics(wanted, present),
        *_groups(wanted, present),
    ]
    if prune:
        for kind, known in (("topic", present.topics), ("group", present.groups)):
            if f"{kind}s" in wanted.named:
                kept = wanted.topics if kind == "topic" else wanted.groups
                gone = sorted(known.keys() - kept.keys())
                found += [DeclaredChange(kind, name, "DELETE", {}, ()) for name in gone]
    return found


def kept_by_prune(wanted: WantedState, present: PresentState, *, prune: bool) -> list[str]:
    """Return the topics that a prune leaves though the file does not have them."""
    if not prune or "topics" not in wanted.named:
        return []
    return sorted({*present.sealed} - wanted.topics.keys())


def _topics(wanted: WantedState, present: PresentState) -> Iterator[DeclaredChange]:
    for name, settings in wanted.topics.items():
        new = name not in present.placed
        plain = {key: value for key, value in settings.items() if key != ATTRIBUTES}
        differences = [
            (key, before, value)
            for key, value in plain.items()
            if (before := None if new else _has(present, name, key, value)) != value
        ]
        known = present.attributes.get(name, {})
        named = settings.get(ATTRIBUTES, {})
        attributes = {key: value for key, value in named.items() if known.get(key) != value}
        body: dict[str, Any] = {key: after for key, _, after in differences}
        if attributes:
            body[ATTRIBUTES] = attributes
        told = [(key, known.get(key), value) for key, value in attributes.items()]
        if new or body:
            yield DeclaredChange("topic", name, "PUT", body, (*differences, *told), new)


def _has(present: PresentState, name: str, key: str, wanted: object) -> object:
    """Return what a topic has; in words where its shards differ, and what is wanted where none of
    them accepts messages, so that nothing of it can be changed."""
    if key == "order":
        return present.order[name]
    keys = ("writeQueues", "readQueues") if key == "queues" else (key,)
    values = {shard[each] for shard in present.placed[name] for each in keys}
    if len(values) > 1:
        return " or ".join(map(str, sorted(values)))
    return values.pop() if values else wanted


def _groups(wanted: WantedState, present: PresentState) -> Iterator[DeclaredChange]:
    for name, settings in wanted.groups.items():
        known = present.groups.get(name)
        body = {
            key: value for key, value in settings.items() if known is None or known[key] != value
        }
        told = [(key, known[key] if known else None, value) for key, value in body.items()]
        if known is None or body:
            yield DeclaredChange("group", name, "PUT", body, tuple(told), known is None)


def _text(value: object) -> str:
    if value is None:
        return "(none)"
    return str(value).lower() if isinstance(value, bool) else str(value)
