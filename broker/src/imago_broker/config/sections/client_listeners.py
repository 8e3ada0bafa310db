"""Further listeners for clients that come another way, and are told other addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_broker.config.key_rules import SHOWN_CHARS_MAX
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LISTENERS_MAX: Final = 8
PROTOCOLS: Final = ("namesrv", "metaq", "rocketmq", "grpc")
_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,10}")
_PORTS: Final = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_LAST_PORT: Final = 65535
WRITTEN: Final = "NAME [host=HOST] [tls] and PROTOCOL=PORT[:TOLD] of " + ", ".join(PROTOCOLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSetting:
    """One of them."""

    name: str
    host: str = ""
    """What its clients are told; empty: `broker.listener_hosts_file` says."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """By protocol, those that are opened; 0: any free one."""
    told: Mapping[str, int] = field(default_factory=dict)
    """Those that clients are told where they are others."""
    tls: bool = False
    """Whether nobody is served there without TLS."""


def parse_listeners(texts: Iterable[str]) -> tuple[ListenerSetting, ...]:
    """Return them as `broker.listeners` writes them; WrongError says what is wrong."""
    found = tuple(map(_parsed, texts))
    names = [each.name for each in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise WrongError(f"listeners: {twice} is there twice")
    if len(found) > LISTENERS_MAX:
        raise WrongError(f"listeners: {len(found)} of them, at most {LISTENERS_MAX}")
    return found


def _parsed(text: str) -> ListenerSetting:
    name, *words = text.split() or [""]
    if not _NAME.fullmatch(name):
        raise WrongError(f"listeners: {text!r:.200}, must be written {WRITTEN}")
    said = dict.fromkeys(PROTOCOLS, "") | {"host": "", "tls": ""}
    ports: dict[str, int] = {}
    told: dict[str, int] = {}
    for word in words:
        key, _, value = word.partition("=")
        if said.get(key) != "" or not _is_said(key, word, value):
            raise WrongError(f"listeners: {name}: {word!r:.100}, must be written {WRITTEN}")
        said[key] = word
        if numbers := _PORTS.fullmatch(value) if key in PROTOCOLS else None:
            ports[key] = _port(name, numbers[1])
            told |= {key: _port(name, numbers[2])} if numbers[2] else {}
    if not ports:
        raise WrongError(f"listeners: {name} has no port: say rocketmq=PORT")
    if "namesrv" in ports and "rocketmq" not in ports:
        raise WrongError(f"listeners: {name}: namesrv tells of rocketmq: say rocketmq=PORT")
    host = said["host"].partition("=")[2]
    return ListenerSetting(name=name, host=host, ports=ports, told=told, tls=bool(said["tls"]))


def _is_said(key: str, word: str, value: str) -> bool:
    if key == "host":
        return _is_shown(value)
    return word == "tls" or (key in PROTOCOLS and _PORTS.fullmatch(value) is not None)


def _port(name: str, text: str) -> int:
    port = int(text)
    if port > _LAST_PORT:
        raise WrongError(f"listeners: {name}: {text} is no port")
    return port


def hosts_of(text: str) -> dict[str, str]:
    """Return the hosts by listener that a file says, a line `NAME=HOST` each."""
    lines = (line.strip().partition("=") for line in text.splitlines())
    return {name: host for name, _, host in lines if _is_shown(host)}


def _is_shown(host: str) -> bool:
    return 0 < len(host) <= SHOWN_CHARS_MAX and host.isprintable()
