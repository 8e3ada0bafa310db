"""`imago config`: show what a broker would run with, explain every key, translate server.ini."""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated

from imago_cli import toml_text
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import print_json, print_line, say
from imago_cli.settings.live import get, set_live

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.config.loading import KeyDescription

_WIDTH = 96

Json = Annotated[bool, Option("--json", help="Print JSON for programs.")]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Show, explain, convert and change configurations.")
    group.add("show", show)
    group.add("defaults", defaults)
    group.add("convert", convert)
    group.add("get", get)
    group.add("set", set_live)
    root.add("config", group)


def show(
    config: Annotated[
        Path | None, Option(help="TOML file; IMAGO__SECTION__KEY overrides it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show all settings that a broker would run with: file, environment, defaults."""
    from imago_broker.config.loading import to_tree
    from imago_cli.servers.server_config import read_config

    tree = to_tree(read_config(config))
    if as_json:
        print_json({section: _plain(values) for section, values in tree.items()})
    else:
        print_line(toml_text.dump(tree).rstrip())


def defaults(as_json: Json = False) -> None:
    """Show every key with its default and meaning, as a configuration file to start from."""
    from imago_broker.config.loading import describe

    keys = describe()
    if as_json:
        print_json([_described(key) for key in keys])
    else:
        print_line(commented(keys))


def convert(
    ini: Annotated[Path, Argument(help="MetaQ's server.ini.")],
    output: Annotated[
        Path | None, Option("--output", "-o", help="File to write; refused if it exists.")
    ] = None,
) -> None:
    """Translate MetaQ's server.ini; standard error names settings without a counterpart."""
    from imago_broker.config import ConfigError
    from imago_broker.config.metaq.metaq_ini import convert as convert_ini
    from imago_broker.core.metaq.metaq_filters import check_config

    try:
        conversion = convert_ini(ini.read_text(encoding="utf-8"), str(ini), check_config)
    except ConfigError as error:
        raise CommandUsageError(str(error)) from error
    except OSError as error:
        raise CommandUsageError(f"{ini}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandUsageError(f"{ini}: {error}") from error
    for note in conversion.notes:
        say(f"note: {note}")
    if output is None:
        print_line(conversion.toml.rstrip())
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(conversion.toml)
    except FileExistsError as error:
        raise CommandUsageError(f"{output} exists already", cure="choose another name") from error
    except OSError as error:
        raise CommandError(
            f"{output}: {error.strerror}", cure="name a file that can be written"
        ) from error


def commented(keys: Iterable[KeyDescription]) -> str:
    """Return a configuration file with every key at its default under its explanation."""
    parts = []
    for section, members in groupby(keys, key=lambda key: key.key.partition(".")[0]):
        lines = [f"[{section}]"]
        for key in members:
            dynamic = " Takes effect at once." if key.dynamic else ""
            wrapped = textwrap.wrap(key.doc + dynamic, _WIDTH)
            lines += [f"# {line}" for line in wrapped]
            lines.append(f"{key.key.partition('.')[2]} = {toml_text.value_text(key.default)}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _described(key: KeyDescription) -> dict[str, object]:
    return {
        "key": key.key,
        "type": key.type,
        "default": _json_value(key.default),
        "dynamic": key.dynamic,
        "meaning": key.doc,
    }


def _plain(values: dict[str, object]) -> dict[str, object]:
    return {key: _json_value(value) for key, value in values.items()}


def _json_value(value: object) -> object:
    if isinstance(value, bool | int | float | str | list | dict):
        return value
    return list(value) if isinstance(value, tuple) else str(value)
