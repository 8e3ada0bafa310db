"""Two clusters of real processes, for a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.mirrors import Pair, started

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with started(folder, "a") as a, started(folder, "b") as b:
        yield Pair(a, b, folder)
