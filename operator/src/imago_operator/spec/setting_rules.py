"""Bounds of the brokers' settings as rules of admission: each by itself.

An API server sees no defaults of brokers, so that relations between settings, and texts that are no
numbers, are left to whoever reads the whole spec: the operator, and `kubectl imago plan`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from imago_operator.broker_rules.keys import KEYS
from imago_operator.spec.schema.rule import Rule

PATH: Final = "spec.brokers.config"
NUMBER: Final = "^-?[0-9]{1,18}([.][0-9]{1,9})?$"
_WIDEST: Final = float(1 << 63)
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    name: (
        -_WIDEST if key.low is None else float(key.low),
        _WIDEST if key.high is None else float(key.high),
    )
    for name, key in KEYS.items()
    if type(key.default) in (int, float)
}
WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    name: key.one_of or ("true", "false")
    for name, key in KEYS.items()
    if key.one_of or type(key.default) is bool
}


def rules(owned: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules about all settings but those that the operator sets."""
    bounds = {name: ends for name, ends in BOUNDS.items() if name not in owned}
    words = {name: each for name, each in WORDS.items() if name not in owned}

    def within(node: Mapping[str, Any]) -> bool:
        return all(
            bounds[name][0] <= float(said) <= bounds[name][1]
            for name, said in node.items()
            if name in bounds and re.search(NUMBER, str(said))
        )

    def among(node: Mapping[str, Any]) -> bool:
        return all(said in words[name] for name, said in node.items() if name in words)

    # A list of one, since CEL has no other way to name a value that is used twice. Words are keys
    # of maps: a server cannot tell how long a list is that it looks up, and fears for its time.
    return (
        Rule(
            path=PATH,
            cel=f"[{_written(bounds)}].all(bounds, self.all(key, !(key in bounds)"
            f" || (type(self[key]) == string && !self[key].matches('{NUMBER}'))"
            " || (double(self[key]) >= bounds[key][0] && double(self[key]) <= bounds[key][1])))",
            holds=within,
            message="a number in config is out of its bounds: docs/configuration.md lists them",
            only_at_admission=True,
        ),
        Rule(
            path=PATH,
            cel=f"[{_listed(words)}].all(words, self.all(key, !(key in words)"
            " || self[key] in words[key]))",
            holds=among,
            message="a word in config is none that its setting takes: docs/configuration.md lists"
            " them",
            only_at_admission=True,
        ),
    )


def _listed(by_name: Mapping[str, tuple[str, ...]]) -> str:
    """Return a map of sets of words as CEL writes it."""
    sets = (
        f"'{name}': {{{', '.join(f'{word!r}: true' for word in each)}}}"
        for name, each in by_name.items()
    )
    return "{" + ", ".join(sets) + "}"


def _written(by_name: Mapping[str, tuple[Any, ...]]) -> str:
    """Return a map of lists as CEL writes it."""
    found = (
        f"'{name}': [{', '.join(f'{one!r}' for one in each)}]" for name, each in by_name.items()
    )
    return "{" + ", ".join(found) + "}"
