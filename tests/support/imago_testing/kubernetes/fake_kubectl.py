#!/usr/bin/env python3
"""A kubectl for tests: answers out of a file, and notes what it was asked.

The file is JSON: `objects` by kind, `brokers` as pod → "METHOD PATH" → [status, answer], `refusals`
as words that a command line must contain → what is said on standard error, `dryRun` as what an
apply would store, `logs` by pod. `calls` next to it gets one line of JSON a call.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

NOTHING = (404, {"error": "x", "message": "none", "cure": "c"})
OPTIONS = ("--namespace=", "--context=", "--kubeconfig=")


def main(arguments: list[str]) -> int:
    """Answer one call."""
    world = json.loads(Path(os.environ["FAKE_KUBECTL"]).read_text())
    with Path(os.environ["FAKE_KUBECTL"] + ".calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    line = " ".join(arguments)
    for words, said in world["refusals"].items():
        if words in line:
            return refuse(said)
    given = [word for word in arguments if not word.startswith(OPTIONS)]
    known = {
        "get": get,
        "annotate": done,
        "apply": apply,
        "exec": execute,
        "create": create,
        "delete": delete,
        "logs": logs,
    }
    return known[given[0]](world, given[1:])


def get(world: dict[str, Any], words: list[str]) -> int:
    kind, *rest = words
    found = world["objects"].get(kind, [])
    if rest and not rest[0].startswith("-"):
        named = [one for one in found if one["metadata"]["name"] == rest[0]]
        if not named:
            return refuse(f'Error from server (NotFound): {kind} "{rest[0]}" not found')
        inner = "jsonpath={.metadata}" in rest
        return say(named[0]["metadata"] if inner else named[0])
    if "-l" in rest:
        wanted = dict(pair.split("=") for pair in rest[rest.index("-l") + 1].split(","))
        found = [
            one for one in found if wanted.items() <= (one["metadata"].get("labels") or {}).items()
        ]
    return say({"kind": "List", "items": found})


def apply(world: dict[str, Any], _: list[str]) -> int:
    items = world["dryRun"]
    return say(items[0] if len(items) == 1 else {"kind": "List", "items": items})


def done(_: dict[str, Any], words: list[str]) -> int:
    print(f"{words[0]}/{words[1]} annotated")
    return 0


def create(_: dict[str, Any], words: list[str]) -> int:
    """Keep what was to be made beside the calls."""
    made = json.loads(Path(words[words.index("-f") + 1]).read_text())
    Path(os.environ["FAKE_KUBECTL"] + ".made").write_text(json.dumps(made))
    return say(made)


def delete(world: dict[str, Any], words: list[str]) -> int:
    kind, name = words[:2]
    if any(one["metadata"]["name"] == name for one in world["objects"].get(kind, [])):
        return say({})
    return refuse(f'Error from server (NotFound): {kind} "{name}" not found')


def execute(world: dict[str, Any], words: list[str]) -> int:
    pod, given = words[0], words[words.index("-c", 3) + 2 :]
    answers = world["brokers"].get(pod)
    if answers is None:
        return refuse("Error from server: error dialing backend: no route to host")
    asked = [f"GET {path}" for path in given]
    if not given[0].startswith("/"):
        method, path, body = given
        assert not body or json.loads(body) is not None
        asked = [f"{method} {path}"]
    for question in asked:
        status, answer = answers.get(question, NOTHING)
        print(status, json.dumps(answer))
    return 0


def logs(world: dict[str, Any], words: list[str]) -> int:
    text = world["logs"].get(f"{words[0]}-previous" if "--previous" in words else words[0])
    if text is None:
        return refuse(f'Error from server (BadRequest): no container of "{words[0]}" found')
    sys.stdout.write(text)
    return 0


def say(value: object) -> int:
    print(json.dumps(value))
    return 0


def refuse(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
