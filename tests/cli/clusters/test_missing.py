"""What did not answer is said before anything is said not to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from imago_cli.clusters import client as client_command
from imago_cli.clusters.client import kill, list_clients
from imago_cli.clusters.missing import all_pages, check_exists
from imago_cli.declared import present
from imago_cli.exits import CommandError
from imago_client import MissingShard

if TYPE_CHECKING:
    from collections.abc import Mapping

ADMIN = "http://a:1"
AWAY = {"shard": "shard-1", "since": None, "why": "its member at h:1 does not answer"}
OTHER = {**AWAY, "why": "its member at h:2 does not answer"}


def paged(*pages: tuple[list[Any], list[Any]]) -> Any:
    """Return what answers a list by pages: items, and what is missing."""

    def ask(path: str) -> Mapping[str, Any]:
        number = int(parse_qs(urlsplit(path).query).get("next", ["0"])[0])
        items, missing = pages[number]
        following = str(number + 1) if number + 1 < len(pages) else None
        return {"items": items, "next": following, "missing": missing}

    return ask


def client(name: str, *groups: str, shared: tuple[str, ...] = ()) -> dict[str, Any]:
    peer = {"shard": "shard-0", "replica": 0, "peer": "1.2.3.4:5", "protocol": "rocketmq"}
    nothing: dict[str, Any] = {key: [] for key in ("users", "producerGroups", "topics")}
    return {
        **nothing,
        **dict.fromkeys(("language", "version"), ""),
        "name": name,
        "consumerGroups": list(groups),
        "connectionCount": 1,
        "connections": [{**peer, "tls": False, "sharedWith": list(shared)}],
    }


def test_what_any_page_lacks_is_missing_once() -> None:
    a, b = {"name": "a"}, {"name": "b"}
    found, missing = all_pages(paged(([a], [AWAY]), ([b], [AWAY, OTHER]), ([], [])), "/x")
    assert (found, missing) == ([a, b], [AWAY, OTHER])


def test_a_client_list_keeps_what_its_first_page_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = paged(([client("a")], [AWAY]), ([client("b")], []))
    monkeypatch.setattr(client_command, "ask", lambda _, path: ask(path))
    with pytest.raises(SystemExit):
        list_clients(None, None, None, ADMIN, partial=False, as_json=False)
    assert "missing: shard-1" in capsys.readouterr().err


def test_the_state_for_apply_keeps_every_member_that_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = paged(([], [AWAY]), ([], [OTHER]))
    monkeypatch.setattr(present, "ask", lambda _, path: ask(path))
    assert present.present_state(ADMIN)[1] == [AWAY, OTHER]


def test_no_client_is_said_only_where_all_have_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answered(missing: list[Any]) -> Any:
        return lambda *_: {"items": [], "next": None, "missing": missing}

    monkeypatch.setattr(client_command, "ask", answered([AWAY]))
    with pytest.raises(SystemExit):
        kill("svc@1", ADMIN, yes=True, partial=False, as_json=False)
    assert "missing: shard-1 is away, what it holds is not searched" in capsys.readouterr().err
    monkeypatch.setattr(client_command, "ask", answered([]))
    with pytest.raises(CommandError, match="no client svc@1 is connected"):
        kill("svc@1", ADMIN, yes=True, partial=False, as_json=False)


def test_who_else_loses_a_connection_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_command, "TOLD_MAX", 1)
    asked: list[str] = []

    def refuse(question: str, **_: object) -> None:
        asked.append(question)
        raise SystemExit(2)

    monkeypatch.setattr(client_command, "confirm", refuse)
    for found in (
        [client("a", "g", shared=("b",))],
        [client("a", "g", shared=("b",)), client("b", shared=("a",))],
    ):
        answer = {"items": found, "next": None, "missing": []}
        monkeypatch.setattr(client_command, "ask", lambda *_, answer=answer: answer)
        with pytest.raises(SystemExit):
            kill("a", ADMIN, yes=False, partial=False, as_json=False)
    assert asked == [
        "Close 1 connection of client a, in the groups g, which b shares?",
        "Close 1 connection of client a, in the groups g and 1 other client?",
    ]


class HalfKnown:
    """A client's administration of a cluster with a group, and perhaps with a shard away."""

    def __init__(self, *missing: MissingShard) -> None:
        self.admin, self._missing = self, list(missing)

    def has_group(self, _: str) -> bool:
        return False

    def groups(self) -> list[str]:
        return ["billing"]

    def missing_shards(self) -> list[MissingShard]:
        return self._missing


def test_no_group_is_said_only_where_all_have_answered(capsys: pytest.CaptureFixture[str]) -> None:
    whole: Any = HalfKnown()
    with pytest.raises(CommandError, match="there is no group bill"):
        check_exists(whole, "bill")
    half: Any = HalfKnown(MissingShard("shard-1", None, "it has no master"))
    with pytest.raises(SystemExit):
        check_exists(half, "bill")
    assert "what it holds is not searched: it has no master" in capsys.readouterr().err
