"""A pipeline lands what Java clients in pods write, and its driver is killed in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e.clients import load
from imago_e2e.pipelines import Pipeline
from imago_testing.interop.drivers import METAQ, ROCKETMQ4
from imago_testing.interop.streams import origin

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver


def test_native_run_lands_every_message_once(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    two = {name: drivers[name] for name in (METAQ, ROCKETMQ4)}
    pipeline = Pipeline(whole, "native", "SparkSubmit")
    with load(whole, two, topic) as running:
        pipeline.make([f"{topic}-{name}" for name in two])
        account.append(f"first rows after {pipeline.until_rows(1):.0f} s")
        epoch = pipeline.kill_driver()
        running.go_on(300)
        account.append(running.finish())
        sent = {body for stream in running.producers for body in stream.acknowledged}
    account.append(f"the rest {pipeline.until_rows(len(sent)):.0f} s after the driver was killed")
    assert int(pipeline.status["epoch"]) > epoch
    assert pipeline.status["engineRef"]["kind"] == "Job"
    pipeline.pause()
    landed = pipeline.landed()
    wanted = {"/".join(map(str, origin(body))) for body in sent}
    assert wanted <= set(landed), "every acknowledged message has landed"
    assert len(landed) == pipeline.rows, "and the status counts them right"
    account.append(f"{len(landed)} rows of {len(sent)} acknowledged messages, none twice")
    pipeline.remove()
