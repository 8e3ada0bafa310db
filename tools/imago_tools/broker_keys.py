"""What the operator knows of broker settings, made from the broker's own: `python -m … FOLDER`.

Three modules: how rules are read, which is the broker's own text; each key; what keys have to do
with each other.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from imago_broker.config import key_rules
from imago_broker.config.loading import describe
from imago_broker.config.sections.relations import RELATIONS
from imago_broker.model.bounds import allowed
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig

READER = '''\
"""How rules of brokers' settings are read: as brokers read them. Made by `make docs`."""

'''
KEYS = '''\
"""Settings of brokers, as far as the operator must know them. Made by `make docs`."""

from __future__ import annotations

from typing import Final

from imago_operator.broker_rules.reading import BrokerKey
from imago_operator.broker_rules.reading import KeyValue as Scalar

__all__ = ["BOUNDS", "KEYS", "BrokerKey", "Scalar"]

BOUNDS: Final[dict[str, tuple[int, int]]] = {
%s}
"""The least and the most of what settings of topics and groups may be."""

KEYS: Final[dict[str, BrokerKey]] = {
%s}
'''
TOGETHER = '''\
"""What settings of brokers have to do with each other. Made by `make docs`."""

# ruff: noqa: E501

from __future__ import annotations

from typing import Final

from imago_operator.broker_rules.reading import Holds, Relation

RELATIONS: Final[tuple[Relation, ...]] = (
%s)
'''


def modules() -> dict[str, str]:
    """Return the texts of the operator's modules by name."""
    _, future, reader = inspect.getsource(key_rules).partition("from __future__")
    keys = [f"    {_text(key.key)}: {_shown(key.rule)},\n" for key in describe()]
    relations = [f"    {_shown(each)},\n" for each in RELATIONS]
    return {
        "reading": READER + future + reader,
        "keys": KEYS % ("".join(_bounds()), "".join(keys)),
        "relations": TOGETHER % "".join(relations),
    }


def _bounds() -> list[str]:
    return [
        f"    {_text(kind + '.' + name)}: ({one.low}, {one.high}),\n"
        for kind, cls in (("topic", TopicConfig), ("group", GroupConfig))
        for name, one in allowed(cls).items()
        if one.kind is int
    ]


def _shown(value: object) -> str:
    """Return a value as it is written, a tuple with names without what it has by default."""
    if isinstance(value, key_rules.BrokerKey | key_rules.Holds | key_rules.Relation):
        given = [
            f"{name}={_shown(said)}"
            for name, said in value._asdict().items()
            if said != value._field_defaults.get(name, ...)
        ]
        return f"{type(value).__name__}({', '.join(given)})"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_shown(item)}, " for item in value) + ")"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


if __name__ == "__main__":
    for module, made in modules().items():
        (Path(sys.argv[1]) / f"{module}.py").write_text(made, encoding="utf-8")
