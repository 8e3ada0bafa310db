"""Settings of brokers as a spec names them: read as brokers read them, and refused as they do."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from imago_operator.broker_rules.keys import KEYS, RELATIONS, BrokerKey, Scalar
from imago_operator.broker_rules.reading import relations_problem
from imago_operator.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.spec.cluster.cluster import ClusterSpec
    from imago_operator.spec.schema.fields import IntOrText


def check_together(spec: ClusterSpec, settings: Mapping[str, Scalar]) -> None:
    """Refuse settings with which a broker would not start, as far as it depends on the spec.

    Nothing is written then that pods would read at their next start, whoever brings that about.
    """
    values = {name: key.default for name, key in KEYS.items()} | dict(settings)
    values["broker.shard"] = spec.brokers.shards - 1
    if spec.zookeeper.external is not None and spec.zookeeper.external.auth is not None:
        values["zookeeper.user"] = "of a Secret"  # which only pods read
    if problem := relations_problem(RELATIONS, values):
        raise InvalidError(f"spec.brokers.config: {problem}")


def settings_of(given: Mapping[str, IntOrText]) -> dict[str, Scalar]:
    """Return settings in the types of brokers; InvalidError names the first that cannot be."""
    return {name: _setting(name, said.value) for name, said in given.items()}


def _setting(name: str, said: int | str) -> Scalar:
    """Return the value in the type of the setting, within the bounds that brokers keep."""
    path = f"spec.brokers.config[{name}]"
    key = KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, KEYS, n=1)
        raise InvalidError(f"{path}: no such setting" + (f"; {near[0]}?" if near else ""))
    try:
        value = _typed(key, said)
    except ValueError as error:
        raise InvalidError(f"{path}: {error}") from error
    if problem := key.problem(value) or key.pattern_problem(value):
        raise InvalidError(f"{path}: {problem}")
    return value


def _typed(key: BrokerKey, said: int | str) -> Scalar:
    kind = type(key.default)
    if kind is bool:
        if said not in ("true", "false"):
            raise ValueError(f'{said!r} must be "true" or "false"')
        return said == "true"
    if kind is tuple:
        return tuple(part.strip() for part in str(said).split(",") if part.strip())
    if kind in (int, float):
        try:
            return kind(said)
        except (ValueError, OverflowError):
            raise ValueError(f"{said!r:.60} must be a number") from None
    return str(said)
