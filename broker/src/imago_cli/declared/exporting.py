"""`imago export`: topics and groups with their settings, for `imago apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin
from imago_cli.clusters.missing import Partial, end_with_told
from imago_cli.connect import AsJson
from imago_cli.declared.present import present_state
from imago_cli.declared.wanted import MISSING
from imago_cli.output import print_json, print_line, say
from imago_cli.yaml_text import dump

if TYPE_CHECKING:
    from imago_cli.line.declared import CommandGroup


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("export", export)


def export(admin: Admin = DEFAULT_ADMIN, partial: Partial = False, as_json: AsJson = False) -> None:
    """Print all topics and groups with their settings, as YAML that `imago apply` takes.

    Not the brokers' own, no messages, offsets or users (`imago user export`), and not on which
    shards a topic is. Exit code 1: a shard is away.
    """
    present, missing = present_state(admin)
    tree: dict[str, Any] = {
        "topics": dict(sorted(present.topics.items())),
        "groups": dict(sorted(present.groups.items())),
    }
    if missing:
        tree[MISSING] = missing
    if as_json:
        print_json(tree)
    else:
        print_line("\n".join(dump(tree)))
    for name in sorted(present.differing):
        say(f"note: topic {name} is not the same on each of its shards: what most have is printed")
    for name in sorted(present.sealed):
        say(f"note: topic {name} is left out: it accepts messages on no shard")
    end_with_told(missing, partial=partial)
