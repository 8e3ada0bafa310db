"""Reading the configuration: one TOML text, then `IMAGO__SECTION__KEY` of the environment.

A key that does not exist is an error, with the nearest one that does: a mistyped key that is
ignored would leave its user with a default that he believes he has changed.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

from imago_broker.config.sections.section import RULE
from imago_broker.config.settings import BrokerConfig, ConfigError, Value
from imago_broker.config.units import kind_of, measured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.config.key_rules import BrokerKey

ENVIRONMENT_PREFIX = "IMAGO__"
TOPICS = "topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDescription:
    """One key as people see it."""

    key: str
    """`section.key`."""
    type: str
    default: Value
    doc: str
    dynamic: bool
    """Whether it may change while the broker runs."""
    rule: BrokerKey
    """What it may say."""


def load(text: str = "", environ: Mapping[str, str] | None = None) -> BrokerConfig:
    """Return the checked configuration; `ConfigError` names the key, the reason and the cure.

    `environ` may set every key but topics: `IMAGO__METAQ__PORT=8123`. Without it only the text
    counts, so that a caller decides whether its environment matters.
    """
    return from_tree(parse_tree(text, environ))


def parse_tree(text: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the text under the environment as nested plain values, unchecked."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the configuration is not TOML: {error}") from error
    for name, value in (environ or {}).items():
        if name.startswith(ENVIRONMENT_PREFIX):
            _override(tree, name, value)
    return tree


def from_tree(tree: Mapping[str, Any]) -> BrokerConfig:
    """Return the checked configuration of a parsed TOML tree."""
    sections = _sections()
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name not in sections and name != TOPICS:
            raise ConfigError(_unknown("section", name, [*sections, TOPICS]))
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name}: must be a section, written [{name}]")
        values[name] = _topics(value) if name == TOPICS else _section(name, sections[name], value)
    try:
        return BrokerConfig(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def parse_override(assignment: str) -> tuple[str, str, str]:
    """Split `section.key=value`, the form of `--set`, into its three parts."""
    path, equals, value = assignment.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and section and key):
        raise ConfigError(f"{assignment!r}: write section.key=value")
    return section, key, value


def with_overrides(tree: dict[str, Any], assignments: Iterable[str]) -> None:
    """Set keys of a TOML tree as `section.key=value` texts say; later ones win."""
    for assignment in assignments:
        section, key, value = parse_override(assignment)
        _set_text(tree, section, key, value, what=f"{section}.{key}")


def describe() -> list[KeyDescription]:
    """Return every key with its default and meaning, in the order of the sections."""
    described = []
    for section, cls in _sections().items():
        hints = get_type_hints(cls)
        defaults = cls()
        described += [
            KeyDescription(
                key=f"{section}.{key.name}",
                type=_type_name(hints[key.name]),
                default=getattr(defaults, key.name),
                doc=key.metadata["doc"],
                dynamic=key.metadata["dynamic"],
                rule=key.metadata[RULE],
            )
            for key in fields(cls)
        ]
    return described


def to_tree(config: BrokerConfig) -> dict[str, dict[str, Any]]:
    """Return the configuration as nested plain values: what `from_tree` reads."""
    tree: dict[str, dict[str, Any]] = {}
    for section in _sections():
        part = getattr(config, section)
        tree[section] = {key.name: _plain(getattr(part, key.name)) for key in fields(part)}
    tree[TOPICS] = {name: dict(settings) for name, settings in config.topics.items()}
    return tree


def _sections() -> dict[str, Any]:
    return {key.name: key.default_factory for key in fields(BrokerConfig) if key.name != TOPICS}


def _section(name: str, cls: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(cls)
    known = [key.name for key in fields(cls)]
    checked = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(_unknown("key", f"{name}.{key}", [f"{name}.{k}" for k in known]))
        checked[key] = typed(f"{name}.{key}", hints[key], value)
    try:
        return cls(**checked)
    except ValueError as error:
        raise ConfigError(f"{name}.{error}") from error


def typed(path: str, wanted: Any, value: Any) -> Value:
    """Return a value as a key of this type holds it; ConfigError for one of another kind."""
    if wanted == tuple[str, ...]:
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(f"{path}: {value!r:.200}, must be a list of texts")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    # bool is an int to Python and never one to a person.
    if type(value) is not wanted:
        raise ConfigError(f"{path}: {value!r:.200}, must be a {_type_name(wanted)}")
    result: Value = value
    return result


def _topics(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for name, settings in values.items():
        if not isinstance(settings, Mapping):
            raise ConfigError(f"topics.{name}: must be a table, for example {{ queues = 8 }}")
        for key, value in settings.items():
            if not isinstance(value, bool | int | float | str):
                raise ConfigError(f"topics.{name}.{key}: {value!r}, must be a number or a text")
        topics[name] = dict(settings)
    return topics


def _override(tree: dict[str, Any], name: str, text: str) -> None:
    parts = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
    if len(parts) != 2:
        raise ConfigError(f"{name}: write {ENVIRONMENT_PREFIX}SECTION__KEY")
    _set_text(tree, parts[0], parts[1], text, what=name)


def _set_text(tree: dict[str, Any], section: str, key: str, text: str, *, what: str) -> None:
    if section == TOPICS:
        name, _, setting = key.rpartition(".")
        number = measured(setting, text)
        value = _guessed(text) if number is None else number
        tree.setdefault(TOPICS, {}).setdefault(name, {})[setting] = value
        return
    cls = _sections().get(section)
    if cls is None:
        raise ConfigError(f"{what}: {_unknown('section', section, [*_sections(), TOPICS])}")
    wanted = get_type_hints(cls).get(key)
    if wanted is None:
        known = [f"{section}.{k.name}" for k in fields(cls)]
        raise ConfigError(_unknown("key", f"{section}.{key}", known))
    tree.setdefault(section, {})[key] = _from_text(what, key, wanted, text)


def _from_text(what: str, key: str, wanted: Any, text: str) -> Any:
    if wanted is str:
        return text
    if wanted == tuple[str, ...]:
        return [item.strip() for item in text.split(",") if item.strip()]
    if wanted is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{what}: {text!r}, must be true or false")
        return text.lower() == "true"
    try:
        return wanted(text.replace("_", ""))
    except ValueError as error:
        if (number := measured(key, text)) is not None:
            return wanted(number)
        units = kind_of(key)
        or_units = f", or {units}" if units else ""
        raise ConfigError(f"{what}: {text!r}, must be a {_type_name(wanted)}{or_units}") from error


def _guessed(text: str) -> bool | int | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdecimal() else text


def _unknown(what: str, name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(known)}"
    return f"{name}: no such {what}{hint}"


def _type_name(wanted: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "text"}
    return names.get(wanted, "list of texts")


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value
