"""A pipeline lands what Java clients in pods write, and its driver is killed in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.pipelines import Pipeline, PlainRun
from imago_testing.interop.drivers import METAQ, ROCKETMQ4
from imago_testing.interop.streams import origin

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.clients import Load
    from imago_testing.java.driver import JavaDriver

LAG_SECONDS_MAX = 60.0


def test_native_run_lands_every_message_once(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    _lands_all_once(whole, drivers, topic, account, Pipeline(whole, "native", "SparkSubmit"), "Job")


@pytest.mark.usefixtures("spark_operator")
def test_run_by_spark_operator_lands_every_message_once(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    pipeline = Pipeline(whole, "kubeflow", "Auto")
    _lands_all_once(whole, drivers, topic, account, pipeline, "SparkApplication")


@pytest.mark.usefixtures("spark_operator")
def test_plain_manifests_land_every_message_once(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    run = PlainRun(whole)
    with load(whole, {ROCKETMQ4: drivers[ROCKETMQ4]}, topic) as running:
        run.make(f"{topic}-{ROCKETMQ4}")
        account.append(running.finish())
        sent = _acknowledged(running)
    account.append(f"all has landed after {run.until_landed(f'{topic}-{ROCKETMQ4}'):.0f} s")
    landed = run.remove()
    assert sent <= set(landed)


def _lands_all_once(
    whole: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
    pipeline: Pipeline,
    engine: str,
) -> None:
    """The story; `engine`: kind of the object that runs it."""
    two = {name: drivers[name] for name in (METAQ, ROCKETMQ4)}
    topics = [f"{topic}-{name}" for name in two]
    with load(whole, two, topic) as running:
        pipeline.make(topics)
        account.append(f"first rows after {pipeline.until_rows(1):.0f} s")
        epoch = pipeline.kill_driver()
        running.go_on(300)
        account.append(running.finish())
        sent = _acknowledged(running)
    stored = sum(map(whole.stored, topics))
    account.append(f"the rest {pipeline.until_rows(stored):.0f} s after the load has ended")
    until(lambda: pipeline.status["lag"] == "0", "the lag is not zero", seconds_max=LAG_SECONDS_MAX)
    told = pipeline.status
    assert (told["rows"], told["engineRef"]["kind"]) == (stored, engine)
    assert int(told["epoch"]) > epoch
    pipeline.pause()
    landed = pipeline.landed()
    assert sent <= set(landed.bodies), "every acknowledged message has landed"
    assert len(landed.bodies) == stored, "and nothing that is not in the topics"
    assert landed.epochs == sorted(landed.epochs), "no run has written after a later one"
    assert {epoch, int(told["epoch"])} <= set(landed.epochs)
    account.append(f"{stored} rows of {len(sent)} acknowledged messages, none twice")
    pipeline.remove()


def _acknowledged(running: Load) -> set[str]:
    """Return whose messages were acknowledged, `<stream>/<number>`."""
    bodies = (body for stream in running.producers for body in stream.acknowledged)
    return {"/".join(map(str, origin(body))) for body in bodies}
