"""Members are named as people see them: slot, replica number, name, or a uuid's beginning."""

from __future__ import annotations

from typing import Any

import pytest

from imago_cli.clusters.member_names import member_named
from imago_cli.exits import CommandError


def member(slot: int, replica: int, uuid: str, address: str) -> dict[str, Any]:
    return {
        "uuid": uuid, "replica": replica, "slot": slot, "address": address,
        "rocketmq": f"h:{10911 + 10 * slot}",
    }  # fmt: skip


SHARD = {
    "name": "shard-0",
    "members": [
        # its folder was lost: the number of the one before it is never given again
        member(0, 3, "9f3a77c2-0000", "127.0.0.1"),
        member(1, 1, "9f3b0000-1111", "my-shard-0-1.my-brokers.ns.svc"),
        member(2, 2, "44d00000-2222", "127.0.0.1"),
    ],
}


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("0", 0), ("3", 0), ("1", 1), ("shard-0", 0), ("shard-0-0", 0), ("shard-0-2", 2),
        ("my-shard-0-1", 1), ("my-shard-0-1.my-brokers.ns.svc", 1), ("9f3a", 0),
        ("44d00000-2222", 2),
    ],
)  # fmt: skip
def test_a_member_has_several_names(name: str, slot: int) -> None:
    assert member_named(SHARD, name)["slot"] == slot


def test_what_is_nobody_lists_everybody() -> None:
    with pytest.raises(CommandError, match="no live member 7 in shard-0") as caught:
        member_named(SHARD, "7")
    assert "slot 0 (replica 3, uuid 9f3a77c2-0000, h:10911); slot 1" in caught.value.cure


@pytest.mark.parametrize("name", ["127.0.0.1", "9f3"])
def test_what_is_not_one_is_refused(name: str) -> None:
    with pytest.raises(CommandError):
        member_named(SHARD, name)


def test_two_that_are_meant_are_listed() -> None:
    crossed = {**SHARD, "members": [member(0, 1, "aaaa", "h"), member(1, 2, "bbbb", "h")]}
    with pytest.raises(CommandError, match="1 is more than one member of shard-0") as caught:
        member_named(crossed, "1")
    assert "slot 0 (replica 1, uuid aaaa" in caught.value.cure
    assert member_named(crossed, "bbbb")["slot"] == 1
