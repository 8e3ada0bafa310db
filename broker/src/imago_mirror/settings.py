"""What a mirror's configuration says: a TOML file, checked as a whole."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_client.config import ClientConfig, parse_addresses
from imago_client.errors import UsageError
from imago_mirror.core.notes import STATES

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?\Z")
_PLACE_KEYS: Final = (
    "bootstrap", "user", "user_file", "password_file", "tls_ca_file", "tls_certificate_file",
    "tls_key_file",
)  # fmt: skip
_MIRROR_KEYS: Final = ("name", "topics", "groups", "state", "listen")
IN_FLIGHT: Final = 1 << 16
"""Requests without an answer on a connection: each queue has a held pull."""


class MirrorSettingsError(Exception):
    """The configuration is wrong: what, and what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """One mirror."""

    name: str
    source: ClientConfig
    target: ClientConfig
    topics: tuple[str, ...]
    """Names, or regular expressions that a whole name matches."""
    groups: tuple[str, ...] = ()
    state: str | None = None
    """What it shall do, whatever it was ordered before; None: what it was ordered."""
    host: str = "127.0.0.1"
    port: int = 0
    """Where it shows its state; 0: nowhere."""

    def wants_topic(self, name: str) -> bool:
        return any(re.fullmatch(each, name) for each in self.topics)

    def wants_group(self, name: str) -> bool:
        return any(re.fullmatch(each, name) for each in self.groups)

    @property
    def topics_by_name(self) -> tuple[str, ...]:
        """Those that are no patterns."""
        return tuple(each for each in self.topics if re.fullmatch(r"[\w%-]+", each))


def read_settings(text: str) -> MirrorSettings:
    """Return what a file says. MirrorSettingsError: what is wrong with it."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MirrorSettingsError(f"it is no TOML: {error}") from None
    _only("", found, ("mirror", "source", "target"))
    mirror = _section(found, "mirror")
    _only("mirror.", mirror, _MIRROR_KEYS)
    name = mirror.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise MirrorSettingsError(
            f"mirror.name: {name!r}, must be up to 48 small letters, digits and dashes"
        )
    state = mirror.get("state")
    if state is not None and state not in STATES:
        raise MirrorSettingsError(f"mirror.state: {state!r}, must be one of {', '.join(STATES)}")
    topics = _patterns(mirror, "topics")
    if not topics:
        raise MirrorSettingsError('mirror.topics: names none; ["orders", "pay-.*"] names some')
    host, port = _listen(mirror.get("listen", ""))
    return MirrorSettings(
        name=name,
        source=_place(found, "source"),
        target=_place(found, "target"),
        topics=topics,
        groups=_patterns(mirror, "groups"),
        state=state,
        host=host,
        port=port,
    )


def _section(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = found.get(name)
    if not isinstance(section, dict):
        raise MirrorSettingsError(f"[{name}]: the section is missing")
    return section


def _only(prefix: str, found: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in found:
        if key not in known:
            raise MirrorSettingsError(f"{prefix}{key}: unknown; known are {', '.join(known)}")


def _patterns(mirror: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = mirror.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise MirrorSettingsError(f'mirror.{key}: must be a list of texts, ["orders", "pay-.*"]')
    for each in value:
        try:
            re.compile(each)
        except re.error as error:
            raise MirrorSettingsError(
                f"mirror.{key}: {each!r} is no regular expression: {error}"
            ) from None
    return tuple(value)


def _listen(value: object) -> tuple[str, int]:
    if value == "":
        return "", 0
    host, _, port = str(value).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise MirrorSettingsError(f"mirror.listen: {value!r}, must be host:port")
    return host.strip("[]"), int(port)


def _place(found: Mapping[str, Any], name: str) -> ClientConfig:
    section = dict(_section(found, name))
    _only(f"{name}.", section, _PLACE_KEYS)
    given = {key: value for key, value in section.items() if value != ""}
    if (file := given.pop("user_file", None)) is not None:
        try:
            given["user"] = Path(str(file)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MirrorSettingsError(f"{name}.user_file: {file}: {error}") from None
    try:
        return ClientConfig(
            **given | {"bootstrap": parse_addresses(given.get("bootstrap", ""))},
            in_flight_max=IN_FLIGHT,
        )
    except UsageError as error:
        raise MirrorSettingsError(f"[{name}] {error}") from None
