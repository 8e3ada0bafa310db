"""`imago spark`: which program it becomes."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from typing import Any

import pytest

from imago_cli.exits import CommandUsageError, Exit
from imago_cli.servers import spark
from imago_testing.command_lines import Ran, run_line


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Ran, list[tuple[Any, ...]]]:
    became: list[tuple[Any, ...]] = []
    monkeypatch.setattr(os, "execve", lambda *given: became.append(given))
    monkeypatch.setattr(spark, "home_for_spark", lambda: "/java")
    return run_line(["spark", *words]), became


@pytest.mark.parametrize("name", spark.APPLICATIONS)
def test_an_application_gets_all_that_follows_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert importlib.util.find_spec(f"imago_spark.pipelines.{name}")
    done, became = run(monkeypatch, name, "--config", "x.toml", "--help")
    assert done.exit_code == 0, done
    ((program, command, environment),) = became
    assert program == sys.executable
    assert command[1:] == ["-m", f"imago_spark.pipelines.{name}", "--config", "x.toml", "--help"]
    assert environment["JAVA_HOME"] == "/java"


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", spark.APPLICATIONS)
def test_an_application_says_what_is_wrong_as_commands_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def said(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(f"imago_spark.pipelines.{name}", run_name="__main__")
        assert ended.value.code == Exit.USAGE
        return capsys.readouterr().err

    cure = f"  cure: imago spark {name} --help"
    assert said("--nosuch") == f"error: No such option: --nosuch\n{cure}\n"
    error, _, rest = said("--config", "not-there.toml").partition("\n")
    assert error in ("error: not-there.toml: No such file or directory", "error: --out is missing")
    assert rest.startswith(cure)


def test_a_mistyped_application_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    done, became = run(monkeypatch, "compakt")
    assert isinstance(done.exception, CommandUsageError)
    assert done.exception.cure == "did you mean compact?"
    assert became == []
