"""`-o table|wide|json|yaml|name`, wherever a command has `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from imago_cli import commands, output
from imago_cli.exits import CommandUsageError
from imago_cli.line.declared import CommandGroup
from imago_cli.line.reading import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

VALUES: list[Any] = [
    [],
    {},
    [{"topic": "orders", "shards": [0, 1]}, {"topic": "no", "deep": {"a": {"b": None}}}],
    {"missing": [], "items": [{"name": "a"}, {"name": "b"}]},
    {"orders": {"queues": 1}},
    "a: b",
    [1, "x", True],
]


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    output.choose_form("json")


def values(*words: str) -> dict[str, Any]:
    """Return what the function of a line's command gets."""
    node: Any = commands.build(words[0])
    while isinstance(node, CommandGroup):
        node, words = node.commands[words[0]], words[1:]
    return Line(node.parameters, words).values()


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    output.print_json([{"topic": "a"}])
    return capsys.readouterr().out


def test_forms_stand_for_json_where_there_is_any(capsys: pytest.CaptureFixture[str]) -> None:
    assert values("topic", "list", "--output", "table")["as_json"] is False
    assert values("topic", "list")["as_json"] is False
    assert printed(capsys) == '[{"topic":"a"}]\n'
    assert values("topic", "list", "-o", "yaml")["as_json"] is True
    assert printed(capsys) == "- topic: a\n"
    assert values("topic", "list", "-oname") == values("topic", "list", "--json")
    assert printed(capsys) == "a\n"
    known = "table, wide, json, yaml, name"
    with pytest.raises(CommandUsageError, match=f"--output xml: must be one of {known}"):
        values("topic", "list", "-o", "xml")
    with pytest.raises(CommandUsageError, match="Option '-o' requires an argument"):
        values("topic", "list", "-o")


def test_other_options_of_that_name_stay() -> None:
    assert values("config", "convert", "server.ini", "-o", "yaml")["output"] == Path("yaml")
    with pytest.raises(CommandUsageError, match="No such option: -o"):
        values("topic", "delete", "orders", "-o", "yaml")


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_yaml_says_what_json_does(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json(value)
    as_json = capsys.readouterr().out
    output.choose_form("yaml")
    output.print_json(value)
    assert yaml.safe_load(capsys.readouterr().out) == json.loads(as_json) == value


def test_names_are_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.choose_form("name")
    for value in VALUES[2:5]:
        output.print_json(value)
    assert capsys.readouterr().out.split() == ["orders", "no", "a", "b", "orders"]


def test_wide_tables_never_fold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    output.choose_form("wide")
    output.print_table("", ("a", "b"), [("x" * 40, "y" * 40)])
    assert f"{'x' * 40} │ {'y' * 40}" in capsys.readouterr().out
