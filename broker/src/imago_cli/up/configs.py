"""What `imago up` starts its processes with: one file of settings for each of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from imago_broker.config import BrokerConfig, ConfigError
from imago_broker.config.loading import ENVIRONMENT_PREFIX, parse_tree, with_overrides
from imago_broker.config.metaq.metaq_ini import convert
from imago_broker.config.sources import from_tree_with_ini, read_ini
from imago_broker.core.metaq.metaq_filters import check_config
from imago_cli import toml_text
from imago_cli.exits import CommandUsageError
from imago_cli.output import say
from imago_cli.servers.server_config import unreadable
from imago_cli.up.plan import local_base, merged, refuse_owned_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from imago_cli.up.plan import BrokerPlace, ClusterPlan

CONFIGS = "config"
"""The folder of the files."""


def base_settings(
    assignments: Sequence[str], metaq_ini: Path | None, config: Path | None = None
) -> dict[str, Any]:
    """Return what all brokers have in common: the files, then the command line."""
    refuse_owned_keys(assignments)
    if ignored := sorted(name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)):
        say(f"note: {', '.join(ignored)}: imago up takes settings from --set and --config alone")
    tree: dict[str, Any] = local_base()
    try:
        if config is not None:
            tree = merged(tree, _settings_in(config))
        if metaq_ini is not None:
            path = metaq_ini.absolute()
            for note in convert(read_ini(path), str(metaq_ini), check_config).notes:
                say(f"note: {metaq_ini.name}: {note}")
            # The brokers read it, again whenever it changes.
            tree.setdefault("metaq", {})["server_ini"] = str(path)
        with_overrides(tree, assignments)
    except ConfigError as error:
        raise CommandUsageError(str(error)) from error
    return tree


def _settings_in(path: Path) -> dict[str, Any]:
    try:
        tree = parse_tree(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unreadable(path, error) from error
    except (UnicodeDecodeError, ConfigError) as error:
        raise CommandUsageError(f"--config {path}: {error}") from error
    for section, values in tree.items():
        if not isinstance(values, dict):
            raise CommandUsageError(f"--config {path}: {section} is in no section")
        refuse_owned_keys([f"{section}.{key}" for key in values], option=f"--config {path}:")
    return tree


def config_path(plan: ClusterPlan, place: BrokerPlace) -> Path:
    """Return where a broker's configuration is written at each start."""
    return plan.data / CONFIGS / f"{place.name}.toml"


def write_configs(plan: ClusterPlan, base: Mapping[str, Any]) -> dict[BrokerPlace, BrokerConfig]:
    """Write each process's configuration file; return those of the brokers, checked."""
    folder = plan.data / CONFIGS
    folder.mkdir(parents=True, exist_ok=True)
    configs = {}
    for place in plan.places():
        tree = plan.broker_tree(place, base)
        configs[place] = _checked(tree)
        config_path(plan, place).write_text(toml_text.dump(tree))
    tree = plan.namesrv_tree(base)
    _checked(tree)
    (folder / "namesrv.toml").write_text(toml_text.dump(tree))
    return configs


def _checked(tree: Mapping[str, Any]) -> BrokerConfig:
    try:
        return from_tree_with_ini(tree)
    except ConfigError as error:
        raise CommandUsageError(str(error)) from error
