"""Our filters decide as those of the original brokers, on the same expressions and properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imago_broker.core.sql92.errors import FilterError
from imago_broker.core.sql92.filters import PropertyFilter
from imago_testing.interop.sql92 import Expressions, original_answers, property_string
from imago_testing.java.modules import ROCKETMQ4_SERVER, ROCKETMQ5_SERVER
from imago_testing.searching import examples, seldom

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.java.modules import JavaModule

pytestmark = [pytest.mark.interop]
ONLY_NEWER = ("CONTAINS", "STARTSWITH", "ENDSWITH")
"""Words that RocketMQ 4.9 does not know."""


@pytest.mark.parametrize("module", seldom([ROCKETMQ5_SERVER, ROCKETMQ4_SERVER]), ids=["5", "4.9"])
def test_filters_decide_as_the_original_s(module: JavaModule, tmp_path: Path) -> None:
    made = Expressions(92)
    cases = [made.case() for _ in range(examples(20_000))]
    # The original's decoder of records drops properties without a value, which is not asked here.
    cases = [(text, {k: v for k, v in given.items() if v}) for text, given in cases]
    if module is ROCKETMQ4_SERVER:
        cases = [case for case in cases if not any(word in case[0].upper() for word in ONLY_NEWER)]
    theirs = original_answers(module, tmp_path, cases)
    assert len(theirs) == len(cases)
    different = [
        (case, ours, other)
        for case, other in zip(cases, theirs, strict=True)
        if (ours := decision(*case)) != (other if other in ("true", "refused") else "false")
        and not (ours == "refused" and other.startswith("refused"))
        # What follows a whole expression is an error here and nothing to the original.
        and decision_without_rest(*case) != (other if other == "true" else "false")
    ]
    assert different == []
    assert {"true", "false", "null", "thrown"} <= {answer.split()[0] for answer in theirs}


def decision(expression: str, properties: dict[str, str]) -> str:
    try:
        found = PropertyFilter(expression)
    except FilterError:
        return "refused"
    return "true" if found.matches(property_string(properties)) else "false"


def decision_without_rest(expression: str, properties: dict[str, str]) -> str:
    """Decide by the longest beginning that ends where something unexpected begins."""
    while expression:
        try:
            PropertyFilter(expression)
        except FilterError as error:
            met = re.search(r"line (\d+), column (\d+)", str(error))
            if met is None:
                return "refused"
            lines = expression.split("\n")[: int(met[1])]
            lines[-1] = lines[-1][: int(met[2]) - 1]
            shorter = "\n".join(lines)
            if shorter == expression:
                return "refused"
            expression = shorter
        else:
            return decision(expression, properties)
    return "refused"
