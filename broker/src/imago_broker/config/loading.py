"""Reading the configuration: one TOML text, then `IMAGO__SECTION__KEY` of the environment."""

from __future__ import annotations

from collections.abc import Mapping

from imago_broker.config.settings import BrokerConfig


def load(text: str = "", environ: Mapping[str, str] | None = None) -> BrokerConfig:
    """Return the checked configuration; `ConfigError` names the key, the reason and the cure."""
    raise NotImplementedError
