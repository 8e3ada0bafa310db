"""Makes docs/rocketmq-codes.md: each request code of RocketMQ, who serves it, and its test.

What is served is read from the source of the processor tables, tests by the names of the codes.

python -m imago_tools.rocketmq_codes          write the page
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.features.catalogue import BROKER_RIGHTS
from imago_broker.processors.rocketmq.access.rights import (
    NAME_RIGHTS,
    Asked,
    MessageTopics,
    open_to_all,
)
from imago_testing.peers.signing import TOPIC, valid_request
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "rocketmq-codes.md"
FEATURES: Final = ROOT / "broker/src/imago_broker/features"
SOURCES: Final = {
    "broker": (
        "broker/src/imago_broker/processors/rocketmq/table.py",
        "broker/src/imago_broker/processors/rocketmq/tools/admin_rows.py",
        "broker/src/imago_broker/processors/rocketmq/users/access_rows.py",
        *(str(path.relative_to(ROOT)) for path in sorted(FEATURES.glob("*/feature.py"))),
    ),
    "name service": ("broker/src/imago_broker/namesrv/server.py",),
}
CLASSES: Final = {
    "foreign": "ForeignBrokers",
    "names": "NameProcessor",
    "receipt": "ReceiptProcessor",
}
"""Handlers that a table gets as arguments."""
RIGHTS: Final = {**BROKER_RIGHTS, **NAME_RIGHTS}
TESTS: Final = ("tests/broker/rocketmq", "tests/broker/namesrv", "tests/broker")

# What servers of RocketMQ have to serve, and what none of them does, by who is asked.
NEEDED: Final = {
    "broker": (
        *(10, 11, 12, 14, 15, 17, 18, 21, 25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 41),
        *(42, 43, 45, 46, 50, 51, 52, 53, 60, 61, 200, 201, 202, 203, 204, 207, 208, 215, 222, 223),
        *(225, 300, 303, 305, 306, 307, 308, 309, 310, 314, 315, 316, 317, 320, 321, 323, 324, 325),
        *(328, 329, 343, 345, 351, 352, 353, 361, 370, 400, 401, 402, 513, 905, 906, 907),
        908,
        *range(2001, 2005),
        *range(3001, 3011),
        *range(200050, 200056),
        200151,
    ),
    "name service": (
        *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313),
        *(318, 319, 322, 327, 901, 904),
    ),
}
SENT: Final = (39, 40, 220, 221, 307, 309, 326, 905)
"""Requests that servers send: to clients, and the last to brokers of others."""
NEVER: Final = (
    *(13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302, 354, 355, 902, 903),
    *range(1001, 1014),
    200056,
)
"""Codes that no broker of RocketMQ's serves, or only its controller, container or RocksDB."""

ABSENT: Final[Mapping[int, str]] = {}
"""Needed codes that are not served today, and why: taken out as they come."""


class Served(NamedTuple):
    """One row of a table."""

    code: RequestCode
    handler: str


def served(server: str) -> dict[int, Served]:
    """Return what a server's table serves, by its source."""
    text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in SOURCES[server])
    classes = CLASSES | dict(re.findall(r"^    (\w+) = (\w+)\(", text, re.MULTILINE))
    classes |= {"pull": "PullProcessor"}
    found = re.findall(r"\bCode\.(\w+)[,:]\s+([a-z_]\w*)\.(\w+)", text)
    rows = (Served(RequestCode[code], f"{classes[owner]}.{name}") for code, owner, name in found)
    return {int(row.code): row for row in rows}


def test_of(code: RequestCode) -> str | None:
    """Return the test module that asks for a code most often, by its name or number."""
    found = {name: asked[code.name] + asked[str(int(code))] for name, asked in _asked().items()}
    most = max(found, key=lambda name: found[name])  # of several the first
    return most if found[most] else None


@cache
def _asked() -> dict[str, Counter[str]]:
    """Return what the broker's test modules call by name and number, RocketMQ's ports first."""
    paths = [path for folder in TESTS for path in sorted((ROOT / folder).rglob("test_*.py"))]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in paths}
    return {
        name: Counter(
            [
                *re.findall(r"\b[A-Z]\w*", text),
                *re.findall(r"\.(?:call|send|pull)\(\s*(\d+)\b", text),
            ]
        )
        for name, text in texts.items()
    }


def page() -> str:
    """Return the page."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield "# RocketMQ's request codes"
    yield ""
    yield "Made by `make docs` from the processor tables. Each code of RocketMQ 4.9 and 5.3, who"
    yield "answers it here and which test asks for it. A code without a handler gets 3,"
    yield "` request type N not supported`, and keeps its connection. The right is asked for where"
    yield "access control is on ([security](security.md)); one of several operations is enough."
    for server, codes in NEEDED.items():
        rows = served(server)
        yield from ("", f"## The {server}", "", "| code | name | handler | right | test |")
        yield "|---|---|---|---|---|"
        for number in sorted({*codes, *rows}):
            yield _row(number, rows)
    yield from ("", "## What servers send", "", "| code | name |", "|---|---|")
    for number in SENT:
        yield f"| {number} | {RequestCode(number).name} |"
    yield from ("", "## What no broker answers", "")
    yield "Codes that RocketMQ's brokers do not serve either, or that belong to its controller, its"
    yield "broker container or RocksDB, get 3:"
    yield from textwrap.wrap(", ".join(map(str, NEVER)) + ".", 100)


def _row(number: int, rows: Mapping[int, Served]) -> str:
    name = RequestCode(number).name
    if number not in rows:
        return f"| {number} | {name} | 3: {ABSENT[number]} | | |"
    test = test_of(rows[number].code)
    shown = f"[{Path(test).name}](../{test})" if test else "none"
    return f"| {number} | {name} | `{rows[number].handler}` | {_right(number)} | {shown} |"


def _right(number: int) -> str:
    """Return what a request of the code needs, as one about a topic and a group does."""
    right = RIGHTS[number]
    if right is open_to_all:
        return "open"
    ext, body = valid_request(number, offset=0)
    command = RemotingCommand(code=number, ext=ext, body=body)
    needs = right(Asked(command, lambda _: MessageTopics(TOPIC, TOPIC)))
    told = (f"{need.kind.value}: {' or '.join(need.operations)}" for need in needs)
    return ", ".join(dict.fromkeys(told))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
