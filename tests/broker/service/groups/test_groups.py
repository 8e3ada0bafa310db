"""Settings of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from imago_broker.errors import RequestError
from imago_broker.model.groups import GroupConfig
from imago_broker.service.groups.groups import GroupService
from imago_testing.stores.manual import ManualStore

if TYPE_CHECKING:
    from imago_log.store import MessageStore


def groups(
    store: ManualStore, *, auto_create_enabled: bool = True, groups_max: int = 10
) -> GroupService:
    return GroupService(
        cast("MessageStore", store),
        auto_create_enabled=auto_create_enabled,
        groups_max=groups_max,
    )


def test_unknown_group_is_made_with_defaults_where_allowed() -> None:
    store = ManualStore()
    assert groups(store, auto_create_enabled=False).get_or_create("g") is None
    assert groups(store).get_or_create("g") == GroupConfig(name="g")
    assert groups(store, auto_create_enabled=False).get("g") == GroupConfig(name="g")


def test_group_of_our_commands_is_there_without_being_kept_or_listed() -> None:
    store = ManualStore()
    made = groups(store, auto_create_enabled=False, groups_max=0)
    assert made.get_or_create("IMAGO_CLI") == GroupConfig(name="IMAGO_CLI")
    assert not store.meta("group")
    older = groups(store)
    older.update(GroupConfig(name="IMAGO_CLI"))  # as brokers have kept it
    older.update(GroupConfig(name="g"))
    assert [each.name for each in older.all()] == ["g"]


def test_impossible_name_is_never_made() -> None:
    assert groups(ManualStore()).get_or_create("../g") is None


def test_changed_group_is_stored_once() -> None:
    store = ManualStore()
    table = groups(store)
    table.update(GroupConfig(name="g", retry_max_times=3))
    table.update(GroupConfig(name="g", retry_max_times=3))
    assert len(store.meta_writes) == 1
    assert [config.name for config in groups(store).all()] == ["g"]


def test_deleted_group_is_gone() -> None:
    store = ManualStore()
    table = groups(store)
    table.update(GroupConfig(name="g"))
    assert table.delete("g")
    assert not table.delete("g")
    assert groups(store).get("g") is None


def test_more_groups_than_the_limit_are_refused() -> None:
    table = groups(ManualStore(), groups_max=1)
    table.update(GroupConfig(name="a"))
    with pytest.raises(RequestError, match="1 groups already"):
        table.update(GroupConfig(name="b"))
    assert table.get_or_create("b") is None


def test_group_that_cannot_be_read_costs_only_itself() -> None:
    store = ManualStore()
    groups(store).get_or_create("g")
    store.put_meta([("group", "a", 5), ("group", "b", {}), ("group", "c", {"name": ""})])
    assert [config.name for config in groups(store).all()] == ["g"]
