"""`-o table|wide|json|yaml|name`, wherever a command has `--json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.main import get_command

from imago_cli import commands, output
from imago_cli.exits import CommandUsageError
from imago_cli.usage import in_form

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


def line(*words: str) -> list[str]:
    return in_form(get_command(commands.build(words[0])), words)


def test_forms_stand_for_json_where_there_is_any() -> None:
    assert line("topic", "list", "-o", "yaml") == ["topic", "list", "--json"]
    assert line("topic", "list", "--output", "table") == ["topic", "list"]
    with pytest.raises(CommandUsageError, match="must be one of table, wide, json, yaml, name"):
        line("topic", "list", "-o", "xml")
    with pytest.raises(CommandUsageError, match="must be one of"):
        line("topic", "list", "-o")


def test_other_options_of_that_name_stay() -> None:
    words = ["config", "convert", "server.ini", "-o", "yaml"]
    assert line(*words) == words
    assert line("topic", "delete", "-o", "yaml") == ["topic", "delete", "-o", "yaml"]


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
