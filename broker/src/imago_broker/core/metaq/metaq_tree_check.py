"""What is wrong with the nodes of MetaQ's public tree, for its clients.

Whoever wrote a node counts alike, brokers of ours and originals, so this also serves an
installation in the middle of a move.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


FINDINGS_MAX: Final = 1000

_MEMBER = re.compile(r"(\d+)-(m|s\d+)")
_OFFSET = re.compile(r"-?\d+(-\d+)?")


class TreeNode(NamedTuple):
    """One node as it was read."""

    data: str
    ephemeral: bool


class TreeFinding(NamedTuple):
    """What is wrong with a node, and what it does to clients."""

    path: str
    what: str


def check_tree(nodes: Mapping[str, TreeNode], root: str) -> list[TreeFinding]:
    """Return what is wrong, at most `FINDINGS_MAX` of it."""
    children: defaultdict[str, list[str]] = defaultdict(list)
    for path in nodes:
        children[path.rpartition("/")[0]].append(path)
    whole = _Whole(root, nodes, children)
    found: list[TreeFinding] = []
    for part in (_brokers, _topics, _consumers):
        for path, what in part(whole):
            found.append(TreeFinding(path, what))
            if len(found) == FINDINGS_MAX:
                return found
    return found


class _Whole(NamedTuple):
    """The tree, and each node's children."""

    root: str
    nodes: Mapping[str, TreeNode]
    children: Mapping[str, list[str]]

    def below(self, path: str) -> list[str]:
        return self.children.get(path, [])


def _brokers(whole: _Whole) -> Iterator[tuple[str, str]]:
    for path in whole.below(f"{whole.root}/brokers/ids"):
        name = path.rpartition("/")[2]
        if not (name.isascii() and name.isdecimal()):
            yield path, "no number: every client fails to read the brokers"
            continue
        master, legacy = whole.nodes.get(f"{path}/master"), whole.nodes[path].data
        if master is None and legacy:
            yield path, f"clients before 1.4.0 go to {legacy}, but there is no master"
        if master is not None and legacy != master.data:
            yield path, f"clients before 1.4.0 go to {legacy or 'none'}, others to {master.data}"
        for child in whole.below(path):
            yield from _address(child, whole.nodes[child])


def _address(path: str, node: TreeNode) -> Iterator[tuple[str, str]]:
    name = path.rpartition("/")[2]
    if name == "master_config_checksum":
        if not node.data.isdecimal():
            yield path, f"{node.data!r:.80} is no checksum"
    elif not node.data.startswith("meta://"):
        yield path, f"{node.data!r:.80} is no address: must be like meta://host:port"
    if not node.ephemeral:
        yield path, "persistent: it will stay after its broker has gone"


def _topics(whole: _Whole) -> Iterator[tuple[str, str]]:
    for branch in ("topics", "topics-pub", "topics-sub"):
        for topic in whole.below(f"{whole.root}/brokers/{branch}"):
            for path in whole.below(topic):
                yield from _offer(whole, branch, path)


def _offer(whole: _Whole, branch: str, path: str) -> Iterator[tuple[str, str]]:
    name, node = path.rpartition("/")[2], whole.nodes[path]
    match = _MEMBER.fullmatch(name)
    if match is None:
        yield path, "is named neither <id>-m nor <id>-s<n>: clients fail to read the topic"
        return
    role = "master" if match.group(2) == "m" else f"slave{match.group(2)[1:]}"
    if f"{whole.root}/brokers/ids/{match.group(1)}/{role}" not in whole.nodes:
        yield path, f"broker {match.group(1)} has no {role}: clients leave the partitions out"
    if not node.ephemeral:
        yield path, "persistent: it will stay after its broker has gone"
    if branch == "topics":
        if not (node.data.isascii() and node.data.isdecimal()):
            yield path, f"{node.data!r:.80} is no number of partitions"
    elif problem := _offer_problem(node.data, name):
        yield path, problem


def _offer_problem(data: str, name: str) -> str:
    try:
        told = json.loads(data)
    except ValueError:
        told = None
    if not isinstance(told, dict) or set(told) != {"numParts", "broker"}:
        return f"{data!r:.80}: must have numParts and broker alone, or clients ignore the broker"
    if told["broker"] != name:
        return f"names the broker {told['broker']!r:.40}"
    if type(told["numParts"]) is not int or told["numParts"] < 1:
        return f"numParts {told['numParts']!r:.40} is no number of partitions"
    return ""


def _consumers(whole: _Whole) -> Iterator[tuple[str, str]]:
    for group in whole.below(f"{whole.root}/consumers"):
        members = {path.rpartition("/")[2] for path in whole.below(f"{group}/ids")}
        for topic in whole.below(f"{group}/owners"):
            for path in whole.below(topic):
                if whole.nodes[path].data not in members:
                    yield path, f"owned by {whole.nodes[path].data!r:.120}, who is not there"
        for topic in whole.below(f"{group}/offsets"):
            for path in whole.below(topic):
                if not _OFFSET.fullmatch(whole.nodes[path].data):
                    yield (
                        path,
                        f"{whole.nodes[path].data!r:.80} is no offset: must be <id>-<position>",
                    )
