"""Copies of objects as a server of Kubernetes makes them: what JSON can say, and nothing else."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson

T = TypeVar("T")


def copied(value: T) -> T:
    """Return a copy that shares nothing with the value; in a tenth of `deepcopy`'s time."""
    copy: Any = orjson.loads(orjson.dumps(value))
    return copy  # type: ignore[no-any-return]  # as the value
