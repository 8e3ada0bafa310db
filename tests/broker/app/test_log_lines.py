"""The log as JSON: a line's event and fields are those of its template."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from imago_broker.app.log_lines import UNNAMED, JsonLines
from imago_broker.app.starting import configure_logging


def line(template: object, *args: object, logger: str = "imago_broker.x", **more: Any) -> Any:
    record = logging.LogRecord(logger, logging.WARNING, "x.py", 1, template, args, None)
    record.__dict__.update(more)
    text = JsonLines().format(record)
    assert "\n" not in text
    return json.loads(text)


@pytest.mark.parametrize(
    ("template", "args", "event", "fields"),
    [
        ("a_b topic=%s queues=%d/%d", ("a", 4, 5), "a_b", {"topic": "a", "queues": "4/5"}),
        ("log.tail-cut from=%d at=%.1f", (3, 0.25), "log.tail-cut", {"from": 3, "at": 0.25}),
        ("a_b ratio=%g", (float("nan"),), "a_b", {"ratio": "nan"}),
        ("a_b error=%s: nothing is freed", ("x: y z",), "a_b", {"error": "x: y z"}),
        ("a_b reason=%s; it stays on=%d", ("x", 1), "a_b", {"reason": "x", "on": 1}),
        ("a_b reason=folders differ", (), "a_b", {"reason": "folders differ"}),
        ("%s peer=%s %s%s at=%s", ("a_b", "p", "w", "", "r"), "a_b", {"peer": "p", "at": "r"}),
        ("a_b part=100%% n=%d", (1,), "a_b", {"part": "100%", "n": 1}),
        ("shard_note shard=%s %s", (0, "leads"), "shard_note", {"shard": "0"}),
        ("one sentence: %s", ("x",), UNNAMED, {}),
    ],
)  # fmt: skip
def test_event_and_fields_are_those_of_the_template(
    template: str, args: tuple[object, ...], event: str, fields: dict[str, object]
) -> None:
    shown = line(template, *args)
    assert (shown["event"], shown["fields"]) == (event, fields)
    assert shown["message"] == template % args
    assert (shown["level"], shown["logger"]) == ("warning", "imago_broker.x")
    assert shown["time"].endswith("+00:00")


def test_lines_of_libraries_have_no_name_and_one_may_be_given() -> None:
    assert line("some_word and more", logger="aiohttp.access")["event"] == UNNAMED
    assert line("%s", "it broke", event="broker_failed")["event"] == "broker_failed"
    assert line({"not": "text"})["fields"] == {}


def test_the_log_is_written_as_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    for form in ("json", "text"):
        monkeypatch.setattr(root, "handlers", [])
        monkeypatch.setattr(root, "level", root.level)
        configure_logging("info", form)
        logging.getLogger("imago_broker.y").info("a_b n=%d", 7)
        print(end="", file=sys.stderr, flush=True)
        said = capsys.readouterr().err
        if form == "json":
            assert json.loads(said)["fields"] == {"n": 7}
        else:
            assert said.endswith(" INFO imago_broker.y a_b n=7\n")
