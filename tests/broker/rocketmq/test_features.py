"""What a feature brings along is written in its folder and nowhere else in the broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import imago_broker
from imago_broker.features.catalogue import FEATURES
from imago_testing.peers.features import pop_of
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_broker.app import Broker

ROOT = Path(imago_broker.__file__).parent
FOLDERS = sorted(path.parent for path in (ROOT / "features").glob("*/feature.py"))


def elsewhere(folder: Path) -> str:
    """Return the broker's whole source but that of a feature."""
    return "\n".join(
        path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py")) if folder not in path.parents
    )


def test_each_folder_is_in_the_catalogue() -> None:
    modules = {each.install.__module__ for each in FEATURES}
    assert modules == {f"imago_broker.features.{folder.name}.feature" for folder in FOLDERS}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_its_codes_metrics_and_parts_are_named_in_its_folder_alone(folder: Path) -> None:
    own, rest = (folder / "feature.py").read_text("utf-8"), elsewhere(folder)
    codes = set(re.findall(r"\bCode\.(\w+)", own))
    metrics = set(re.findall(r"\b(?:gauge|counter)\(\s*\"(\w+)\"", own))
    assert codes or metrics
    assert [code for code in sorted(codes) if re.search(rf"\bCode\.{code}\b", rest)] == []
    assert [name for name in sorted(metrics) if f'"{name}"' in rest] == []
    imported = re.findall(rf"from imago_broker\.features\.{folder.name}\.(\w+)", rest)
    assert imported == ["feature"], "by the catalogue"


def test_all_of_it_is_in_a_running_broker(broker: Broker) -> None:
    table = broker.ports.rocketmq.protocol_factory().server.table  # type: ignore[attr-defined]
    rows = {code for feature in broker.rocketmq.features for code in (r.code for r in feature.rows)}
    assert rows == {code for feature in FEATURES for code in feature.rights}
    assert rows <= set(table.rows)
    assert RequestCode.POP_MESSAGE in rows
    assert pop_of(broker).service.out == 0
