"""The events that a broker's log has, for docs/reference/events.md: out of the calls of loggers."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.app.log_lines import UNNAMED, keys, named

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2] / "broker" / "src"
PACKAGES: Final = ("imago_broker", "imago_log", "imago_client")
"""What runs in a broker's process; the client where it asks original brokers."""
SOURCE: Final = "broker/src"
LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")
LOGGERS: Final = ("log", "logger", "_log")
SAID: Final = "said"
"""The variable for a template that has no room in its call."""

GIVEN: Final = {
    "imago_broker.cluster.session.node_acl": (
        "zookeeper_opened",
        "zookeeper_protected",
        "zookeeper_not_opened",
        "zookeeper_not_protected",
    ),
    "imago_broker.replication.follower.following": (
        "replication_disconnected",
        "replication_unreachable",
    ),
    "imago_broker.server.refusals": ("connection_refused", "tls_handshake_failed"),
    "imago_broker.service.access.denials": ("access_denied", "access_would_be_denied"),
    "imago_broker.service.topics.topics": ("topic_created", "topic_changed"),
    "imago_log.lifecycle.opening": ("log.read-again", "log.topics-read"),
}
"""The events of the templates that begin with one that is filled in, by their module."""


class Event(NamedTuple):
    """What one call of a logger writes."""

    name: str
    level: str
    fields: tuple[str, ...]
    module: str


def events() -> list[Event]:
    """Return what every call writes; ValueError for one that has no name."""
    found: list[Event] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found += _of_module(module, ast.parse(path.read_text(encoding="utf-8")))
    return found


def _of_module(module: str, tree: ast.Module) -> Iterator[Event]:
    kept = [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == SAID
        and isinstance(node.value, ast.Constant)
    ]
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=logger), attr=level), args=[first, *_]
            ) if logger in LOGGERS and level in LEVELS:
                templates = [first.value] if isinstance(first, ast.Constant) else kept
                names = [extra for keyword in node.keywords for extra in _given(keyword)]
                for template in map(str, templates):
                    yield from _of_template(module, level, template, names)


def _of_template(module: str, level: str, template: str, names: list[str]) -> Iterator[Event]:
    own = named(template)
    told = "error" if level == "exception" else level
    if own != UNNAMED:
        names = [own]
    elif template.startswith("%s "):
        names = [*GIVEN[module]]
    if not names:
        raise ValueError(f"{module} logs what has no name: {template!r}")
    for name in names:
        yield Event(name, told, tuple(keys(template)), module)


def _given(keyword: ast.keyword) -> list[str]:
    if keyword.arg != "extra" or not isinstance(keyword.value, ast.Dict):
        return []
    return [str(value.value) for value in keyword.value.values if isinstance(value, ast.Constant)]


def table() -> str:
    """Return one row an event, sorted."""
    rows = []
    found = events()
    for name in sorted({event.name for event in found}):
        all_of = [event for event in found if event.name == name]
        levels = ", ".join(dict.fromkeys(event.level for event in all_of))
        told = ", ".join(dict.fromkeys(f"`{key}`" for event in all_of for key in event.fields))
        loggers = ", ".join(dict.fromkeys(f"`{event.module}`" for event in all_of))
        rows.append(f"| `{name}` | {levels} | {told} | {loggers} |")
    return "\n".join(["| event | level | fields | logger |", "|---|---|---|---|", *rows]) + "\n"
