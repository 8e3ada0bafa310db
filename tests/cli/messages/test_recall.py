"""What is said of a message that may wait."""

from __future__ import annotations

import pytest

from imago_cli.exits import CommandError
from imago_cli.messages import waiting
from imago_cli.messages.waiting import recall


@pytest.mark.parametrize(
    ("cut", "said"),
    [(True, "whether 0A waits is not known"), (False, "no message 0A waits for its time")],
)
def test_nothing_is_said_to_wait_only_where_all_were_looked_at(
    monkeypatch: pytest.MonkeyPatch, cut: bool, said: str
) -> None:
    items = [{"shard": "shard-0", "waiting": 1, "messages": [], "cut": cut}]
    monkeypatch.setattr(waiting, "ask", lambda *_: {"items": items, "missing": []})
    with pytest.raises(CommandError, match=said):
        recall("0A", "http://a:1", "a:1", yes=True)
