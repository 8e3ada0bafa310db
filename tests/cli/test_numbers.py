"""A number on a command line that is none, or out of bounds, is told with what it must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from typer.main import get_command

from imago_cli import commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Done

    Imago = Callable[..., Done]


class Number(NamedTuple):
    """One that some command takes."""

    line: tuple[str, ...]
    """What stands before it."""
    name: str
    low: float | None
    high: float | None


def _numbers(command: Any, path: tuple[str, ...]) -> Iterator[Number]:
    before = 0
    for param in command.params:
        is_argument = not param.opts[-1].startswith("-")
        if param.type_descriptor.annotation in (int, float):
            words = ("x",) * before + ("--",) if is_argument else (param.opts[-1],)
            yield Number((*path, *words), param.opts[-1], param.min, param.max)
        before += is_argument
    for name, inner in getattr(command, "commands", {}).items():
        yield from _numbers(inner, (*path, name))


def _all() -> list[Number]:
    found = [each for name in commands.COMMANDS for each in _numbers(_loaded(name), ())]
    return sorted({each for each in found if each.line})


def _loaded(name: str) -> Any:
    return get_command(commands.build(name))


ALL = _all()


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
        assert first.startswith(f"error: {number.name} {value}: must be a ")
        assert "number" in first
        assert number.low is None or f", {number.low} " in first
        assert number.high is None or first.endswith(f" to {number.high}")
        assert cure.endswith(" --help")
