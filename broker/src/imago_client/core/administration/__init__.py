"""Operations of administration: topics, groups, pipelines. A part is loaded once it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_client.core.administration import (
        administration,
        group_administration,
        group_resets,
        shards,
        topic_changes,
    )

__all__ = ["administration", "group_administration", "group_resets", "shards", "topic_changes"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
