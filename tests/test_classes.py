"""Guards of the classes: one meaning a name, and no class too large to hold in mind."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("broker/src", "operator/src", "spark-apps/src")
METHODS_MAX = 25
LINES = re.compile(
    r"^(?:class (?P<name>\w+)|    (?:async )?def (?P<method>\w+)|(?P<other>(?:async )?def ))",
    re.MULTILINE,
)
"""A class, a method, a function: where the formatter puts them."""

BLOCKING = "the blocking face has the names of the asyncio one"
COPIED = "made by `make docs` of the broker's own, as the operator may import nothing of ours"
PUBLIC_ERROR = "the client raises to callers what the broker raises inside"
WIRE_FORM = "the wire form of the thing that the other module means"

ARGUMENTS_MAX = 6
MANY_ARGUMENTS = {
    "declared:Declared": 8,
    "group:GroupConsumer": 7,
    "halves:Half": 7,
    "messages:Message": 11,
    "messages:MessageService": 7,
    "metaq_group:MetaqGroupConsumer": 8,
    "outbox:Outbox": 7,
    "push_consumer:PushConsumer": 11,
    "topics:TopicService": 8,
}
"""Classes that are made with more, which is a fault of theirs: the list only gets shorter."""

SHARED_NAMES = {
    "Admin": BLOCKING,
    "BodyError": "public in the client, which raises it where the wire's codec raised its own",
    "BrokerError": PUBLIC_ERROR,
    "BrokerKey": COPIED,
    "Client": BLOCKING,
    "Connection": "a client's TCP connection; in the wire, RocketMQ's word in a body",
    "FrameDecoder": "one for each framing: remoting and replication",
    "HidesMessagesError": PUBLIC_ERROR,
    "Holds": COPIED,
    "Member": "public in the client: of a consumer group; in the broker: of a shard",
    "Message": "public in the client; in the wire, MetaQ's stored form of one",
    "MessageQueue": WIRE_FORM,
    "Metadata": WIRE_FORM,
    "LocalTransaction": BLOCKING,
    "MetaqClient": BLOCKING,
    "MetaqGroupConsumer": BLOCKING,
    "MetaqGroupProducer": BLOCKING,
    "MetaqSessionFactory": BLOCKING,
    "OpenTransaction": BLOCKING,
    "OrderedProducer": BLOCKING,
    "Partition": "MetaQ's word, for its clients, its files and the check of these",
    "Producer": BLOCKING,
    "PopConsumer": BLOCKING,
    "PullConsumer": BLOCKING,
    "Requester": BLOCKING,
    "Relation": COPIED,
    "RequestError": "refusals with RocketMQ's code; the broker's own have none",
    "TopicConfig": WIRE_FORM,
    "TopicExistsError": PUBLIC_ERROR,
    "TransactionProducer": BLOCKING,
    "UniqueKeys": "a client's survives forks and clocks that step; a broker's does what is asked",
    "Value": "MetaQ's answer VALUE; the base of remoting's values",
    "Version": "MetaQ's command; RocketMQ's version ordinals",
    "XaResource": BLOCKING,
}
"""Class names that occur in several modules, each with the reason why that is no mistake."""


@cache
def classes() -> dict[tuple[str, str], int]:
    """Return every public class of a module, with how many methods it has; read as formatted."""
    found: dict[tuple[str, str], int] = {}
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            module, current = str(path.relative_to(ROOT / source)), None
            for line in LINES.finditer(path.read_text()):
                if line["other"]:
                    current = None
                elif line["name"]:
                    current = (module, line["name"])
                    found[current] = 0
                elif current is not None:
                    found[current] += 1
    return {key: count for key, count in found.items() if not key[1].startswith("_")}


def test_a_class_name_has_one_meaning() -> None:
    """Rename one of them, or say in `SHARED_NAMES` why both have the name."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module, name in classes():
        homes[name].add(module)
    twice = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert {n: m for n, m in twice.items() if n not in SHARED_NAMES} == {}
    assert SHARED_NAMES.keys() - twice.keys() == set(), "on the list, but no longer twice"


def test_no_class_does_everything() -> None:
    """Give a part of the class's state a class of its own."""
    found = {f"{m}:{n}": count for (m, n), count in classes().items() if count > METHODS_MAX}
    assert found == {}


def constructors() -> dict[str, int]:
    """Return how many arguments each class is made with, dataclasses aside: they are values."""
    return {
        f"{path.stem}:{node.name}": len(
            [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]
        )
        - 1
        for path in _sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
    }


def _arguments(of: ast.arguments) -> int:
    return len([*of.posonlyargs, *of.args, *of.kwonlyargs])


def test_constructors_say_what_belongs_together() -> None:
    """Give what belongs together a dataclass; a class with fewer arguments leaves the list."""
    found = {name: count for name, count in constructors().items() if count > ARGUMENTS_MAX}
    assert found == MANY_ARGUMENTS


SLOT = re.compile(r"^        self\.(?P<name>[a-z]\w*): Callable\[", re.MULTILINE)
FILLED = re.compile(r"^ +(?!self\.\w+ =)[\w.\[\]]+\.(?P<name>[a-z]\w*) = ", re.MULTILINE)


def test_nobody_fills_a_slot_of_another_object() -> None:
    """Give it what it calls by its constructor or a method, or keep a list that others join."""
    sources = {path: path.read_text() for path in _sources()}
    slots = {(path, m["name"]) for path, text in sources.items() for m in SLOT.finditer(text)}
    names = {name for _, name in slots}
    filled = {
        f"{path.relative_to(ROOT)}: {match[0].strip()}"
        for path, text in sources.items()
        for match in FILLED.finditer(text)
        if match["name"] in names
    }
    assert filled == set()


def _sources() -> list[Path]:
    return [path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))]
