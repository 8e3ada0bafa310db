"""Settings of brokers, as far as the operator must know them: `rules.json`, made by `make docs`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from imago_operator.broker_rules.reading import BrokerKey, Holds, Relation
from imago_operator.broker_rules.reading import KeyValue as Scalar

__all__ = ["BOUNDS", "KEYS", "RELATIONS", "BrokerKey", "Scalar"]


def _tuples(value: Any) -> Any:
    """Return the fields of a value, or the value, with tuples where JSON has lists."""
    if isinstance(value, dict):
        return {name: _tuples(field) for name, field in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _conditions(conditions: tuple[dict[str, Any], ...]) -> tuple[Holds, ...]:
    return tuple(Holds(**each) for each in conditions)


_RULES: Final = _tuples(json.loads(files(__package__).joinpath("rules.json").read_text("utf-8")))
BOUNDS: Final[dict[str, tuple[int, int]]] = _RULES["bounds"]
"""The least and the most of what settings of topics and groups may be."""
KEYS: Final = {name: BrokerKey(**key) for name, key in _RULES["keys"].items()}
RELATIONS: Final = tuple(
    Relation(_conditions(each["when"]), _conditions(each["must"]), each["says"])
    for each in _RULES["relations"]
)
"""What settings have to do with each other."""
