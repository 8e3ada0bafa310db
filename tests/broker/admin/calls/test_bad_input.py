"""Every route, query, header and body that makes no sense: a refusal in words of ours."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from imago_broker import admin as admin_package
from imago_broker.admin.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin

SOURCES = "\n".join(
    path.read_text("utf-8") for path in sorted(Path(admin_package.__file__).parent.rglob("*.py"))
)
QUERIES = sorted(
    set(re.findall(r'query(?:\.get|\.getall)?[\[(]"(\w+)"', SOURCES))
    | set(re.findall(r'number\(\s*(?:request\.)?query, "(\w+)"', SOURCES))
)
HEADERS = ("Imago-Operator-Epoch", "Idempotency-Key", "Content-Encoding", "Authorization", "Origin")
OF_PYTHON = re.compile(
    r"invalid literal|dictionary update|object is not|has no attribute|NoneType|unhashable"
    r"|subscriptable|not iterable|unexpected keyword|positional argument|set_int_max_str_digits"
    r"|Traceback|must be (?:int|str|bool|float|dict|list|tuple|bytes)\b|<class |codec can"
    r"|out of range in|unpack|KeyError|isoformat|^'\w*'\.?$"
)
"""Words of the interpreter, which say nothing to who calls."""
LONG = "9" * 4400
"""More digits than the interpreter reads as a number, and fewer than a line of HTTP may have."""
WORDS = ("", "x", "-1", "9" * 30, LONG, "1e3", "1_0", "٣", " 1", "[1]", "null", "\x00")
VALUES: tuple[object, ...] = (
    *(None, True, -1, 0, 1 << 62, 1.5, "", "x", "٣", LONG),
    *([], {}, [1], [[]], [{}], ["x"], [None], {"a": 1}, {"": []}, {"a": {"b": None}}),
    {LONG: 1},
)
STOPS = {"/admin/v1/metaq/stop", "/admin/v1/metaq/threads", "/admin/v1/metaq/instance"}
"""They end the broker, or show the interpreter's own words to who asks for them."""
TIME = pytest.mark.timeout(900)


def paths(path: str) -> Iterator[str]:
    """The path of a route with names that are there, and with such as nobody has."""
    filled = re.sub(r"\{\w+:(\w+)\|[^{}]*\}", r"\1", path)
    first = re.sub(r"\{[^{}]*\}", "orders", filled, count=filled.count("{") - 1)
    words = ("orders", "0", LONG, "٣", "-1", "a%00b") if "{" in filled else ("",)
    for word in words:
        yield re.sub(r"\{[^{}]*\}", quote(word, safe="%"), first)


def routes(methods: Iterable[str]) -> list[tuple[str, str]]:
    """Routes of administration by these methods."""
    return [
        (method, path)
        for method, path, *_ in ROUTES
        if method in methods and path.startswith("/admin/v1/") and path not in STOPS
    ]


def said(answer: dict[str, str]) -> str:
    """What a refusal says, without what it repeats of the request."""
    return re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\{.*\}|\[.*\]", "…", answer["message"])


class Told:
    """What calls were answered; a call succeeds, or is refused in words that its caller knows."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.problems: list[tuple[object, ...]] = []

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> None:
        status, answer = await self._admin.call(method, path, body, **headers)
        formed = status < 400 or {"error", "message", "cure"} <= answer.keys()
        if not formed or status == 500 or (status >= 400 and OF_PYTHON.search(said(answer))):
            self.problems.append((method, path[:90], body, headers, status, answer))


@pytest.fixture
async def orders(admin: Admin, broker: Broker) -> Admin:
    """A topic and a group, so that calls go further than to their names."""
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 2})
    await admin.call("PUT", "/admin/v1/groups/orders", {})
    broker.offsets.commit("orders", "orders", 0, 0)
    return admin


@TIME
async def test_no_query_and_no_header_is_answered_in_words_of_python(
    orders: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    assert {"limit", "queue", "offset", "from", "to"} <= set(QUERIES)
    caplog.set_level(logging.ERROR)
    told = Told(orders)
    for method, path in routes(("GET",)):
        for each in paths(path):
            await told.call(method, each)
        for word in WORDS:
            for name in QUERIES:
                named = "" if name == "topic" else "topic=orders&"
                whole = f"{next(paths(path))}?{named}{name}={quote(word)}"
                await told.call(method, whole)
    for name in HEADERS:
        for word in WORDS[:-1]:
            sent = {name: word.encode("ascii", "ignore").decode()}
            await told.call("POST", "/admin/v1/uncordon", {}, **sent)
    assert not told.problems, "\n".join(map(repr, told.problems))
    assert not caplog.records, caplog.text[:4000]


async def keys_of(admin: Admin, method: str, path: str) -> list[str]:
    """The keys that the body of a call may have, as its refusal of another one names them."""
    _, answer = await admin.call(method, path, {"zzzzzzzz": 1})
    _, found, listed = str(answer.get("cure", "")).partition("Known keys: ")
    return listed.rstrip(".").split(", ") if found else []


@TIME
async def test_no_body_is_answered_in_words_of_python(
    orders: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    told = Told(orders)
    with_keys = set()
    for method, path in routes(("POST", "PUT", "PATCH")):
        where = next(paths(path))
        for body in VALUES:
            await told.call(method, where, body)
        keys = [key for key in await keys_of(orders, method, where) if key]
        with_keys |= {(method, path)} if keys else set()
        for key in keys:
            for value in VALUES:
                await told.call(method, where, {key: value})
        for each in paths(path):
            await told.call(method, each, {})
    assert len(with_keys) > 12, with_keys
    assert not told.problems, "\n".join(map(repr, told.problems))
    assert not caplog.records, caplog.text[:4000]
