"""A rule that no single field can say: in CEL for the API server, in Python for everybody else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from imago_operator.spec.schema.values import Duration, Quantity

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule on one node of a resource.

    Both forms see the node with its defaults filled in, and both are asked only when the node
    is there. A rule with `old` compares with the node before the edit, and is asked only when
    there was one.
    """

    path: str
    """Node: `` for the resource itself, `spec.brokers`, `spec.updatePolicy.windows[]`."""
    cel: str
    holds: Callable[[Any], bool] | None = None
    holds_after: Callable[[Any, Any], bool] | None = None
    """Like `holds`, of the node and of what it was before."""
    message: str
    only_at_admission: bool = False
    """Whether an object that is there all the same is worked on, as far as that goes."""

    def allows(self, node: Any, old: Any) -> bool:
        """Return whether the rule lets the node be; `old` is None where there was none."""
        if self.holds is not None:
            return self.holds(node)
        assert self.holds_after is not None
        return old is None or self.holds_after(node, old)


def immutable(path: str, name: str, *, message: str = "") -> Rule:
    """Return the rule that a field, or its absence, stays as it is."""
    cel = (
        f"has(self.{name}) == has(oldSelf.{name})"
        f" && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    )
    return Rule(
        path=path,
        cel=cel,
        holds_after=lambda node, old: node.get(name) == old.get(name),
        message=message or f"{name} cannot be changed",
    )


def exactly_one(path: str, first: str, second: str) -> Rule:
    """Return the rule that one of two fields is given."""
    return Rule(
        path=path,
        cel=f"has(self.{first}) != has(self.{second})",
        holds=lambda node: (first in node) != (second in node),
        message=f"give exactly one of {first} and {second}",
    )


def not_smaller(path: str) -> Rule:
    """Return the rule that the size of a claim, where it is given, only grows."""

    def holds(node: Any, old: Any) -> bool:
        if "size" not in old:
            return True
        return "size" in node and Quantity(node["size"]).bytes >= Quantity(old["size"]).bytes

    return Rule(
        path=path,
        cel="!has(oldSelf.size) || (has(self.size)"
        " && quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0)",
        holds_after=holds,
        message="size cannot shrink: a volume keeps what it has",
    )


LEAST: Final = "1ms"


def spans(path: str, name: str, *, low: str = LEAST, high: str) -> Rule:
    """Return the rule that a duration, where it is given, lies within bounds."""
    least, most = Duration(low).seconds, Duration(high).seconds
    return Rule(
        path=path,
        cel=f"!has(self.{name}) || (duration(self.{name}) >= duration('{low}')"
        f" && duration(self.{name}) <= duration('{high}'))",
        holds=lambda node: name not in node or least <= Duration(node[name]).seconds <= most,
        message=f"{name} must be from {low} to {high}",
    )


def resource_name(size_max: int, what: str) -> tuple[Rule, ...]:
    """Return the rules that names of children can be made from the resource's name."""
    return (
        Rule(
            path="",
            cel=f"size(self.metadata.name) <= {size_max}",
            holds=lambda node: len(node["metadata"]["name"]) <= size_max,
            message=f"the name of {what} has at most {size_max} characters",
        ),
        Rule(
            path="",
            cel="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            holds=lambda node: _is_label(node["metadata"]["name"]),
            message=f"the name of {what} begins with a letter and has only a-z, 0-9 and -",
        ),
    )


def _is_label(name: str) -> bool:
    inside = name.isascii() and name.replace("-", "a").isalnum() and name == name.lower()
    return inside and name[0].isalpha() and not name.endswith("-")
