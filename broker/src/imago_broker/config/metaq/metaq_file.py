"""Reading the text of MetaQ's ``server.ini``: sections, keys that exist, keys that must be there.

Every error names the file and the line. What the keys mean here is in `metaq_keys`.
"""

from __future__ import annotations

import difflib
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_broker.config.cron import CronError
from imago_broker.config.metaq.metaq_keys import (
    SYSTEM,
    TOPIC,
    WITHOUT_EFFECT_IN_ORIGINAL,
    ZOOKEEPER,
)
from imago_broker.config.sections.section import FILTER_PREFIX, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_broker.config.metaq.metaq_keys import IniKey

REQUIRED: Final = (
    "brokerId",
    "numPartitions",
    "unflushThreshold",
    "unflushInterval",
    "maxSegmentSize",
    "maxTransferSize",
)
TEXT_BYTES_MAX: Final = 4 << 20
"""Ten thousand topics with all their keys."""

_SECTION = re.compile(r"\[\s*(?:(system|zookeeper)|topic\s*=\s*(.+?))\s*\]")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9%|_*-][A-Za-z0-9%|_.*-]*")


@dataclass(frozen=True, slots=True)
class IniValue:
    """One line ``key=text``."""

    key: str
    text: str
    line: int


IniSection = dict[str, IniValue]


@dataclass(slots=True)
class MetaqFile:
    """The sections of one file; blank values count as absent."""

    name: str
    system: IniSection = field(default_factory=dict)
    zookeeper: IniSection = field(default_factory=dict)
    topics: dict[str, IniSection] = field(default_factory=dict)
    topic_lines: dict[str, int] = field(default_factory=dict)

    def wrong(self, line: int, text: str) -> ConfigError:
        """Return the error of a line."""
        return ConfigError(f"{self.name}, line {line}: {text}")

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """Say the line of what is wrong with it."""
        try:
            yield
        except (ConfigError, CronError) as error:
            raise self.wrong(line, str(error)) from error


def parse(text: str, name: str) -> MetaqFile:
    """Return the sections of a file; `ConfigError` for what the original would refuse."""
    if len(text) > TEXT_BYTES_MAX:
        raise ConfigError(f"{name}: {len(text)} characters, at most {TEXT_BYTES_MAX}")
    ini = MetaqFile(name)
    section: IniSection | None = None
    keys: Mapping[str, IniKey] = {}
    seen: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in ";#":
            continue
        if line.startswith("["):
            section, keys = _section(ini, line, number, seen)
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if section is None or not equals:
            raise ini.wrong(number, f"{line!r:.80} is neither a section nor key=value")
        with ini.at(number):
            _check_key(key, keys)
        if key in section:
            raise ini.wrong(number, f"{key}: is on line {section[key].line} already")
        if value:
            section[key] = IniValue(key, value, number)
    _check_whole(ini)
    return ini


def _section(
    ini: MetaqFile, line: str, number: int, seen: dict[str, int]
) -> tuple[IniSection, Mapping[str, IniKey]]:
    match = _SECTION.fullmatch(line)
    if match is None:
        raise ini.wrong(number, f"{line!r:.80}, there are [system], [zookeeper] and [topic=NAME]")
    known, topic = match.group(1), match.group(2)
    which = f"[{known}]" if known else f"[topic={topic}]"
    if which in seen:
        raise ini.wrong(number, f"{which:.200}: is on line {seen[which]} already: join them")
    seen[which] = number
    if topic:
        if not _TOPIC_NAME.fullmatch(topic):
            raise ini.wrong(
                number,
                f"{topic!r:.80}: a topic's name consists of letters, digits and %|_-. and starts"
                " with no dot; * stands for anything",
            )
        ini.topic_lines[topic] = number
        return ini.topics.setdefault(topic, {}), {key.name: key for key in TOPIC}
    if known == "system":
        return ini.system, {key.name: key for key in SYSTEM}
    return ini.zookeeper, {key.name: key for key in ZOOKEEPER}


def _check_key(key: str, keys: Mapping[str, IniKey]) -> None:
    if key in keys or (key.startswith(FILTER_PREFIX) and f"{FILTER_PREFIX}<group>" in keys):
        return
    if key in WITHOUT_EFFECT_IN_ORIGINAL:
        raise ConfigError(f"{key}: MetaQ takes this key and does nothing with it: remove it")
    if key in {each.name for each in SYSTEM}:
        raise ConfigError(f"{key}: belongs into [system]")
    nearest = difflib.get_close_matches(key, list(keys), n=1, cutoff=0.0)
    raise ConfigError(f"Invalid config key:{key},do you mean '{nearest[0]}'?")


def _check_whole(ini: MetaqFile) -> None:
    blank = [key for key in REQUIRED if key not in ini.system]
    problem = ""
    if blank:
        which = "it" if len(blank) == 1 else "them"
        problem = f"Blank value for {', '.join(blank)}: set {which} in [system]"
    elif not ini.topics:
        problem = "there is no [topic=NAME] section: name at least one topic"
    elif not ini.zookeeper:
        problem = "there is no [zookeeper] section: MetaQ needs one even when disabled"
    if problem:
        raise ConfigError(f"{ini.name}: {problem}")
