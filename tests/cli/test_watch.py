"""`imago watch`: a command's own words and code, in one place, with what is new in bold."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from imago_cli.watch import on_screen


def run(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "imago_cli", "watch", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=100)


def test_a_look_says_what_the_command_says_and_ends_as_it_does() -> None:
    done = run("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    head, said, *_ = done.stdout.splitlines()
    assert head.startswith("imago topic list --bootstrap 127.0.0.1:1  ")
    assert head.endswith("Z  exit code 1")
    assert said.startswith("error: 127.0.0.1:1: Connection refused")


def test_it_looks_as_often_as_it_is_told() -> None:
    done = run("--every", "0.5", "--count", "3", "config", "--help")
    assert (done.returncode, done.stdout.count("Usage: imago config")) == (0, 3)


@pytest.mark.parametrize("words", [(), ("watch", "topic", "list")])
def test_what_cannot_be_watched_is_refused(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "imago watch" in done.stderr


def test_on_a_terminal_it_draws_over_the_look_before() -> None:
    theirs, ours = pty.openpty()
    line = [
        sys.executable,
        "-m",
        "imago_cli",
        "watch",
        "--every",
        "0.5",
        "--count",
        "2",
        "--",
        "down",
        "--help",
    ]
    with subprocess.Popen(line, stdout=ours, stderr=ours) as ran:
        os.close(ours)
        drawn = b""
        try:
            while part := os.read(theirs, 65536):
                drawn += part
        except OSError:  # a terminal's other side is gone
            pass
    os.close(theirs)
    assert ran.returncode == 0
    assert drawn.count(b"\033[H") == drawn.count(b"Usage: imago down") == 2
    assert b"\033[1m" not in drawn


def test_lines_that_are_new_are_bold_but_not_at_first() -> None:
    first = on_screen("h", ["a", "b"], None, (80, 24))
    assert first == "\033[Hh\033[K\n\033[K\na\033[K\nb\033[K\n\033[J"
    later = on_screen("h", ["a", "c"], {"a", "b"}, (80, 24))
    assert "\na\033[K\n\033[1mc\033[0m\033[K\n" in later


def test_what_has_no_room_is_counted_and_nothing_scrolls() -> None:
    drawn = on_screen("a long head", [f"line {n}" for n in range(10)], None, (6, 7))
    shown = [line.removesuffix("\033[K") for line in drawn.removeprefix("\033[H").split("\n")]
    assert shown == ["a long", "", "line 0", "line 1", "line 2", "… 7 lines more", "\033[J"]
    exact = on_screen("h", ["a", "b", "c", "d"], None, (6, 7))
    assert "more" not in exact
