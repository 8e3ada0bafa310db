"""`imago group pause` and `resume`: brokers give a group nothing, or again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_cli.clusters.missing import Partial, apart_from, check_exists, end_with
from imago_cli.connect import DEFAULT_BOOTSTRAP, Bootstrap, Yes, confirm, connected
from imago_cli.output import say

if TYPE_CHECKING:
    from imago_client.blocking import Client


def pause(
    group: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, yes: Yes = False, partial: Partial = False
) -> None:
    """Have brokers give a group nothing more, until it is resumed; its members stay connected.

    It is RocketMQ's setting consumeEnable, as of mqadmin updateSubGroup: for whoever pulls, pops or
    speaks gRPC. What members hold already is handled; MetaQ's consumers are not paused.
    """
    with connected(bootstrap) as client:
        check_exists(client, group)
        confirm(f"Give group {group} nothing more until it is resumed?", yes=yes)
        _set(client, group, enable=False, partial=partial)


def resume(group: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, partial: Partial = False) -> None:
    """Have brokers give a paused group messages again, from where it stopped."""
    with connected(bootstrap) as client:
        check_exists(client, group)
        _set(client, group, enable=True, partial=partial)


def is_paused(client: Client, group: str) -> bool:
    """Whether brokers give a group nothing."""
    settings = client.admin.group_settings(group)
    return settings is not None and not settings.consume_enable


def _set(client: Client, group: str, *, enable: bool, partial: bool) -> None:
    from imago_wire.remoting.bodies.config import SubscriptionGroupConfig

    known = client.admin.group_settings(group) or SubscriptionGroupConfig(group_name=group)
    missing = client.admin.missing_shards()
    with apart_from(missing):
        client.admin.create_group(replace(known, consume_enable=enable))
    say(f"group {group}: {'resumed' if enable else 'paused'}")
    end_with(missing, partial=partial, lacks="as it was")
