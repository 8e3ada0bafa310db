"""What may be told of an error to whoever sent the value."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

import imago_wire
from imago_wire.errors import ProtocolError, WrongError, WrongKindError, in_our_words
from imago_wire.record_format.properties import encode
from imago_wire.remoting.fields import int_field

if TYPE_CHECKING:
    from collections.abc import Callable


SOURCES = Path(imago_wire.__file__).parents[1]


def ours() -> None:
    raise WrongError("in words")


def within() -> None:
    with contextlib.ExitStack():
        try:
            int("x")
        except ValueError as error:
            raise WrongKindError("in words") from error


def silent() -> None:
    raise WrongError


def hollow() -> None:
    raise ValueError("in Python's words")


def caught(act: Callable[[], Any]) -> Exception:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("act", [ours, within])
def test_what_we_raise_is_told(act: Callable[[], Any]) -> None:
    assert in_our_words(caught(act), "else") == "in words"


@pytest.mark.parametrize(
    "act",
    ids=map(str, range(12)),
    argvalues=[
        silent,
        hollow,
        lambda: int("x"),
        lambda: int("9" * 5000),
        lambda: dict("ab"),  # type: ignore[arg-type]  # what a body may bring
        lambda: dict[str, str]()["key"],
        lambda: getattr(None, "lower")(),  # noqa: B009, PLW0108  likewise
        lambda: bytes.fromhex("xy"),
        lambda: b"\xff".decode("utf-8"),
        lambda: orjson.loads(b"{"),
        lambda: ipaddress.ip_address("x"),
        lambda: 1 / 0,
    ],
)
def test_what_python_and_libraries_raise_is_not(act: Callable[[], Any]) -> None:
    assert in_our_words(caught(act), "else") == "else"


def test_errors_of_our_own_kinds_say_it_themselves() -> None:
    for error in (caught(lambda: encode({"": "x"})), caught(lambda: int_field({"n": "x"}, "n", 0))):
        assert isinstance(error, ProtocolError)
        assert in_our_words(error, "else") == str(error)
    assert in_our_words(WrongError("never raised"), "else") == "never raised"


def test_whatever_the_broker_raises_of_these_kinds_is_told() -> None:
    bare = re.compile(
        r"\braise (?:ValueError|TypeError)\(|^class \w+\((?:ValueError|TypeError)\)", re.MULTILINE
    )
    found = [
        f"{path.relative_to(SOURCES)}:{path.read_text()[: each.start()].count(chr(10)) + 1}"
        for package in ("imago_wire", "imago_log", "imago_broker", "imago_cli")
        for path in sorted((SOURCES / package).rglob("*.py"))
        for each in bare.finditer(path.read_text())
    ]
    assert found == [], "raise WrongError or WrongKindError: see imago_wire.errors.in_our_words"
