"""What a broker's configuration is made from: its TOML, the environment, MetaQ's server.ini.

What the TOML and the environment say wins over the ini file, topic by topic and key by key.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_broker.config.loading import from_tree, parse_tree
from imago_broker.config.metaq.metaq_ini import convert
from imago_broker.config.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.config.settings import BrokerConfig

    Check = Callable[[BrokerConfig], None]


def load_with_ini(
    text: str, environ: Mapping[str, str] | None = None, check: Check | None = None
) -> BrokerConfig:
    """Return the checked configuration, `metaq.server_ini` read where it is named.

    `ConfigError` names the file, the line or key, the reason and the cure; see `convert`.
    """
    return from_tree_with_ini(parse_tree(text, environ), check)


def from_tree_with_ini(tree: Mapping[str, Any], check: Check | None = None) -> BrokerConfig:
    """Return the checked configuration of a parsed tree, as `load_with_ini` does."""
    path = tree.get("metaq", {}).get("server_ini")
    if not path or not isinstance(path, str):
        return from_tree(tree)
    conversion = convert(read_ini(Path(path)), path, check)
    return from_tree(_over(tomllib.loads(conversion.toml), tree))


def read_ini(path: Path) -> str:
    """Return the text of a server.ini; ConfigError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"metaq.server_ini: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"metaq.server_ini: {path}: {error}: write it in UTF-8") from error


def _over(base: dict[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with what `tree` says in its place."""
    for name, values in tree.items():
        section = base.setdefault(name, {})
        if name == "topics" and isinstance(values, dict):
            for topic, settings in values.items():
                section[topic] = {**section.get(topic, {}), **settings}
        elif isinstance(values, dict):
            section.update(values)
        else:
            base[name] = values
    return base
