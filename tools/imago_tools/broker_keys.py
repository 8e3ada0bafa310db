"""What the operator knows of broker settings, made from the broker's own: `python -m … FOLDER`.

How rules are read, which is the broker's own text, and the rules themselves as data: bounds, keys,
what keys have to do with each other.
"""

from __future__ import annotations

import inspect
import json
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


def files() -> dict[str, str]:
    """Return the texts of the operator's files by name."""
    _, future, reader = inspect.getsource(key_rules).partition("from __future__")
    bounds = {
        f"{kind}.{name}": [one.low, one.high]
        for kind, cls in (("topic", TopicConfig), ("group", GroupConfig))
        for name, one in allowed(cls).items()
        if one.kind is int
    }
    keys = {key.key: _shown(key.rule) for key in describe()}
    relations = [_shown(each) for each in RELATIONS]
    rules = {"bounds": bounds, "keys": keys, "relations": relations}
    return {
        "reading.py": READER + future + reader,
        "rules.json": json.dumps(rules, indent=1, ensure_ascii=False) + "\n",
    }


def _shown(value: object) -> object:
    """Return a value as JSON has it, a tuple with names without what it has by default."""
    if isinstance(value, key_rules.BrokerKey | key_rules.Holds | key_rules.Relation):
        return {
            name: _shown(said)
            for name, said in value._asdict().items()
            if said != value._field_defaults.get(name, ...)
        }
    return [_shown(item) for item in value] if isinstance(value, tuple) else value


if __name__ == "__main__":
    for name, made in files().items():
        (Path(sys.argv[1]) / name).write_text(made, encoding="utf-8")
