"""What a member says of its problem fits into a registration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from imago_broker.app.member import shard_member
from imago_broker.app.member.shard_member import ShardMember

if TYPE_CHECKING:
    import pytest


class Lasting:
    """A failure that lasts."""

    lasts = True

    def __str__(self) -> str:
        return "a disk\nthat fails"


def test_a_problem_is_one_line_that_is_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_member, "PROBLEM_CHARS_MAX", 11)
    member = cast("ShardMember", SimpleNamespace(failures=SimpleNamespace(last=Lasting())))
    assert ShardMember.problem.fget(member) == "a disk that"  # type: ignore[attr-defined]
