"""The matrix of clients and features, from what the suite runs: tests of tests/interop say by the
mark `shows` which feature they stand for, by fixtures or by `clients=` with which client."""

from __future__ import annotations

import contextlib
import io
import json
import re
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
INTEROP: Final = ROOT / "tests" / "interop"

BY_CI, BY_HAND = "●", "○"
FEATURES: Final = {
    "send": "send or put, in each way that the client has",
    "batch": "send batches",
    "send-ordered": "send in order of a key",
    "compressed": "compressed bodies",
    "create": "a topic that the first send creates",
    "group": "consume as a group",
    "ordered": "consume in order (queue locks)",
    "broadcast": "consume broadcast",
    "filter": "filter by tag",
    "pull": "pull or get queues of your choice, by offset or time",
    "retry": "failed messages come again",
    "dead": "dead letters",
    "delay": "delay levels",
    "transactions": "transactions: commit, rollback, answer to checks",
    "xa": "XA transactions: both phases, recovery",
    "timer": "delivery at a time of its own, and recall",
    "request": "request and reply",
    "pop": "consume by POP, where brokers deal out the queues",
    "light": "light message queues (LMQ)",
    "priority": "priorities of messages",
    "lite-topics": "lite topics, taken up one by one",
    "query": "find messages by id and key",
    "admin": "administration and statistics by the client's library",
    "tls": "TLS with a checked certificate",
    "users": "users and rights",
    "across": "read what the other protocol wrote",
    "handover": "no error at a planned handover of the master",
    "killed": "goes on after `kill -9` of its broker",
    "drain": "loses nothing while a shard is drained",
}
"""What marks name, in the order of rows."""


class Client(NamedTuple):
    """A column."""

    title: str
    version: str


def clients() -> dict[str, Client]:
    """Return the columns, with the versions that the suite fetches."""
    others = INTEROP / "others"
    node, node_sdk = (
        json.loads((others / name / "package.json").read_text())["dependencies"]
        for name in ("node", "node-sdk")
    )
    return {
        "metaq": Client("MetaQ Java", _java("metaq-client")),
        "rocketmq4": Client("RocketMQ Java", _java("rocketmq4-client")),
        "rocketmq5": Client("RocketMQ Java", _java("rocketmq5-client")),
        "sdk-java": Client("RocketMQ 5 SDK, Java", _java("rocketmq5-sdk")),
        "sdk-python": Client(
            "RocketMQ 5 SDK, Python",
            _found(r"rocketmq-python-client==([\d.]+)", others / "python-sdk" / "requirements.txt"),
        ),
        "sdk-go": Client(
            "RocketMQ 5 SDK, Go",
            _found(r"golang/v5 v([\d.]+)", others / "go-sdk" / "go.mod"),
        ),
        "sdk-node": Client("RocketMQ 5 SDK, Node", str(node_sdk["rocketmq-client-nodejs"])),
        "go": Client(
            "Go: rocketmq-client-go", _found(r"client-go/v2 v([\d.]+)", others / "go" / "go.mod")
        ),
        "cpp": Client(
            "C++, of the Python package rocketmq",
            _found(r"rocketmq==([\d.]+)", others / "cpp" / "requirements.txt"),
        ),
        "node": Client("Node: ali-ons", str(node["ali-ons"])),
    }


def _java(module: str) -> str:
    """Return the version of a module's first dependency."""
    root = Xml.parse(INTEROP / "java" / module / "pom.xml").getroot()
    version = root.find(".//{*}dependency/{*}version")
    assert version is not None
    return str(version.text)


def _found(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text())
    assert found, f"{path}: {pattern} is not there"
    return found[1]


class _Collector:
    """A plugin that keeps the tests."""

    def __init__(self) -> None:
        self.items: list[pytest.Function] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items += [item for item in session.items if isinstance(item, pytest.Function)]


def collected() -> list[pytest.Function]:
    """Return the tests of clients, without running any."""
    collector, said = _Collector(), io.StringIO()
    arguments = ["--collect-only", "-q", "-m", "interop or others", "-p", "no:cacheprovider"]
    with contextlib.redirect_stdout(said):
        code = pytest.main([*arguments, "--rootdir", str(ROOT), str(INTEROP)], plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"tests/interop cannot be collected:\n{said.getvalue()}")
    return collector.items


def shown(items: list[pytest.Function]) -> dict[tuple[str, str], str]:
    """Return who runs each pair of feature and client; ValueError: a test does not say its own."""
    by_hand = {pair: BY_HAND for item in items if _is_by_hand(item) for pair in _pairs(item)}
    by_ci = {pair: BY_CI for item in items if not _is_by_hand(item) for pair in _pairs(item)}
    return by_hand | by_ci


def _is_by_hand(item: pytest.Function) -> bool:
    return item.get_closest_marker("others") is not None


def _pairs(item: pytest.Function) -> Iterator[tuple[str, str]]:
    mark = item.get_closest_marker("shows")
    if mark is None or not set(mark.args) <= set(FEATURES):
        raise ValueError(f"{item.nodeid}: pytest.mark.shows has to name one of {list(FEATURES)}")
    used = set(mark.kwargs.get("clients", ())) or _by_fixtures(item)
    if not used:
        raise ValueError(f"{item.nodeid}: no fixture names its client: shows(…, clients=(…))")
    yield from ((feature, client) for feature in mark.args for client in used)


def _by_fixtures(item: pytest.Function) -> set[str]:
    named = {"metaq", "rocketmq4", "rocketmq5"} & set(item.fixturenames)
    params = item.callspec.params if hasattr(item, "callspec") else {}
    chosen = {str(params["rocketmq"])} if "rocketmq" in params else set()
    languages = f"{params.get('sdk', '')} {params.get('sdks', '')}".split()
    return named | chosen | {f"sdk-{language}" for language in languages}


def matrix() -> str:
    """Return the table."""
    columns, pairs = clients(), shown(collected())
    heads = [f"{client.title} {client.version}" for client in columns.values()]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + ":-:|" * len(heads)]
    for feature, title in FEATURES.items():
        cells = [pairs.get((feature, client), "") for client in columns]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
