"""What a file of topics and groups says, checked before anything is changed. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from imago_broker.config.sections.section import LEVELS
from imago_broker.config.units import measured
from imago_broker.model.bounds import Allowed, allowed, as_json
from imago_broker.model.groups import GroupConfig
from imago_broker.model.names import PARTITIONS_MAX, group_problem, topic_problem
from imago_broker.model.topics.attributes import attributes_problem, unknown_problem
from imago_broker.model.topics.topics import attribute_text, perm_problem
from imago_cli.connect import is_system
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KINDS: Final = ("topics", "groups")
MISSING: Final = "missing"
"""Which shards an export had no answer of: groups that they alone know are not in its file."""
ATTRIBUTES: Final = "attributes"
_QUEUES: Final = Allowed(int, 0, 1, PARTITIONS_MAX)
_WHOLE_TOPIC: Final[Mapping[str, Callable[[object], str | None]]] = {
    "queues": _QUEUES.problem,
    "writeQueues": _QUEUES.problem,
    "readQueues": _QUEUES.problem,
    "perm": lambda value: (perm_problem(value) or "").removeprefix("perm: ") or None,
    "order": Allowed(bool, default=False).problem,
}
TOPIC_KEYS: Final = (*_WHOLE_TOPIC, ATTRIBUTES)
GROUP_SETTINGS: Final = {
    name: one
    for name, one in allowed(GroupConfig).items()
    if name not in (ATTRIBUTES, "forbidden_topics")
}


@dataclass(frozen=True, slots=True)
class WantedState:
    """Settings by name; those that are not named stay as they are."""

    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    """Which of the two kinds the file has at all."""


def wanted_state(told: object, where: str, *, prune: bool = False) -> WantedState:
    """Return what a file says; UsageError names the first thing that nobody can be meant by.

    `prune`: what it does not have is to be deleted. A file that ends behind `topics:` may be cut
    off, and does not ask for that, nor does one that was made while shards were away.
    """
    tree = _mapping(told, where)
    _refuse_unknown(tree, (*KINDS, MISSING), where)
    if not tree.keys() & KINDS:
        raise CommandUsageError(f"{where}: says nothing", cure=f"it has {' and '.join(KINDS)}")
    if prune:
        _refuse_cut(tree, where)
    found = {
        kind: {name: each(name, said) for name, said in _mapping(tree[kind], kind).items()}
        for kind, each in (("topics", _topic), ("groups", _group))
        if kind in tree
    }
    return WantedState(found.get("topics", {}), found.get("groups", {}), frozenset(found))


def _refuse_cut(tree: Mapping[str, object], where: str) -> None:
    """Refuse to delete what a file that is not whole lacks."""
    if tree.get(MISSING):
        raise CommandUsageError(
            f"{where}: was made while shards were away, and --prune would delete what it lacks",
            cure="make it again with all shards, or apply it without --prune",
        )
    for kind, said in tree.items():
        if said is None:
            raise CommandUsageError(
                f"{where}: nothing stands behind {kind}:, and --prune would delete them all",
                cure=f"`{kind}: {{}}` asks for that; leave {kind} out to keep them",
            )


def _topic(name: str, said: object) -> Mapping[str, Any]:
    where = f"topic {name}"
    if problem := topic_problem(name):
        raise CommandUsageError(f"{where:.200}: {problem}")
    if is_system(name) and not name.startswith("%"):
        raise CommandUsageError(f"{where} is the brokers' own", cure="leave it out")
    settings = _mapping(said, where)
    _refuse_unknown(settings, TOPIC_KEYS, where)
    if "queues" in settings and settings.keys() & {"writeQueues", "readQueues"}:
        raise CommandUsageError(
            f"{where}: queues stands for both writeQueues and readQueues", cure="name one or both"
        )
    for key, problem_of in _WHOLE_TOPIC.items():
        if key in settings and (problem := problem_of(settings[key])):
            raise CommandUsageError(f"{where}: {key}: {problem}")
    if ATTRIBUTES not in settings:
        return settings
    return {**settings, ATTRIBUTES: _attributes(settings[ATTRIBUTES], where)}


def _attributes(said: object, where: str) -> dict[str, str]:
    named = _mapping(said, f"{where}: {ATTRIBUTES}")
    if problem := unknown_problem(named):
        raise CommandUsageError(f"{where}: {problem}")
    found: dict[str, str] = {}
    for name, value in named.items():
        if not isinstance(value, str | int | bool):
            raise CommandUsageError(f"{where}: {name}: {as_json(value)}, must be a text")
        text = attribute_text(value)
        number = measured(name, text)
        found[name] = text if number is None else str(number)
    if problem := attributes_problem(found, acknowledgements=frozenset(LEVELS)):
        raise CommandUsageError(f"{where}: {problem}")
    return found


def _group(name: str, said: object) -> Mapping[str, Any]:
    where = f"group {name}"
    if problem := group_problem(name):
        raise CommandUsageError(f"{where:.200}: {problem}")
    settings = _mapping(said, where)
    _refuse_unknown(settings, GROUP_SETTINGS, where)
    for key, value in settings.items():
        if problem := GROUP_SETTINGS[key].problem(value):
            raise CommandUsageError(f"{where}: {key}: {problem}")
    return settings


def _mapping(said: object, where: str) -> dict[str, Any]:
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise CommandUsageError(f"{where}: {as_json(said)}, must be names with what they mean")
    for key in said:
        if not isinstance(key, str):
            raise CommandUsageError(f"{where}: {as_json(key)} is no text", cure="quote it")
    return said


def _refuse_unknown(said: Mapping[str, object], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in said:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            cure = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise CommandUsageError(f"{where}: no such key: {key:.60}", cure=cure)
