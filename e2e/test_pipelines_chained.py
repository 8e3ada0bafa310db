"""Ingest, parse, aggregate and audit as ImagoPipelines on topics that Java clients in pods fill.

Drivers are killed meanwhile; the audit of all three tables is the judge.
`tests/spark/test_story.py` tells the same of processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_e2e.clients import load
from imago_e2e.pipelines import Pipeline
from imago_testing.interop.drivers import METAQ, ROCKETMQ4

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

NATIVE = "SparkSubmit"


@pytest.mark.timeout(1200)
def test_a_chain_of_pipelines_has_no_difference_to_its_topics(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    two = {name: drivers[name] for name in (METAQ, ROCKETMQ4)}
    topics = [f"{topic}-{name}" for name in two]
    bronze = Pipeline(whole, "bronze", NATIVE)
    # The clients' bodies are no JSON: every message is a reject, with its reason.
    silver = Pipeline(whole, "silver", NATIVE, {"name": "parse"}, schema="id bigint")
    figures = {"by": "topic", "window": "1m", "delay": "0s", "measures": "count"}
    gold = Pipeline(whole, "gold", NATIVE, {"name": "aggregate"}, **figures)
    chain = (bronze, silver, gold)
    with load(whole, two, topic) as running:
        for one in chain:
            one.make(topics)
        for one in chain:
            one.until_rows(1)
            one.kill_driver()
        running.go_on(300)
        account.append(running.finish())
    stored = sum(map(whole.stored, topics))
    for one in chain:
        one.until_read()
    assert (bronze.rows, silver.rows) == (stored, stored)
    assert all(one.status["driver"] and one.status["commit"] >= 0 for one in chain)
    for one in chain:
        one.pause()
    application = {"name": "audit", "path": bronze.table, "args": ["--deep"]}
    audit = Pipeline(whole, "judge", NATIVE, application, tables=f"{silver.table}, {gold.table}")
    audit.make(topics)
    assert audit.until_ended() == "COMPLETED"
    account.append(f"{stored} messages in three tables, no difference")
    for one in (audit, gold, silver, bronze):
        one.remove()
