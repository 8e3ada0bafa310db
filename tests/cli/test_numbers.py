"""A number on a command line that is none, or out of bounds, is told with what it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from imago_cli import commands
from imago_cli.line.declared import all_commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Done

    Imago = Callable[..., Done]


class Number(NamedTuple):
    """One that some command takes."""

    line: tuple[str, ...]
    """What stands before it."""
    name: str
    low: float | None
    high: float | None


def _all() -> list[Number]:
    found = []
    for name in commands.COMMANDS:
        for path, command in all_commands(commands.build(name)):
            before = 0
            for one in command.parameters:
                words = (one.label,) if one.is_option else ("x",) * before + ("--",)
                if one.kind in (int, float):
                    least, most = one.declared.least, one.declared.most
                    found.append(Number((*path, *words), one.label, least, most))
                before += not one.is_option
    return sorted({*found})


ALL = _all()
NOTHING = "''"


def test_numbers_are_found_in_all_kinds_of_places() -> None:
    lines = [" ".join(each.line) for each in ALL]
    assert {"topic create --queues", "up --shards", "bench --seconds"} <= set(lines)
    assert any(line.endswith("--") for line in lines)


@pytest.mark.parametrize("number", ALL, ids=lambda each: " ".join(each.line))
def test_a_wrong_number_is_told_with_what_it_must_be(imago: Imago, number: Number) -> None:
    wrong = ["x", "1.5.2", ""]
    wrong += [] if number.low is None else [f"{number.low - 1}"]
    wrong += [] if number.high is None else [f"{number.high + 1}"]
    for value in wrong:
        done = imago(*number.line, value)
        assert (done.returncode, done.stdout) == (2, "")
        first, cure = done.stderr.splitlines()
        assert first.startswith(f"error: {number.name} {value or NOTHING}: must be a ")
        assert "number" in first
        assert number.low is None or f", {number.low} " in first
        assert number.high is None or first.endswith(f" to {number.high}")
        assert cure.endswith(" --help")
