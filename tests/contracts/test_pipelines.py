"""What every coordinator promises about pipelines: a fence between their runs that only rises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.pipelines import Pipeline, PipelineProgress
from imago_broker.ports import CoordinatorConflictError, RegistryDamagedError

if TYPE_CHECKING:
    from imago_testing.clusters.registry import Registry

NAME = "lake.orders"


def progress(rows: int) -> PipelineProgress:
    return PipelineProgress(rows=rows, lag=3, batch=7, at=1_700_000_000_000)


async def test_of_an_unknown_pipeline_the_run_of_epoch_0_may_write(registry: Registry) -> None:
    one = await registry.join()
    assert await one.pipelines.read_pipeline(NAME) == Pipeline()
    await one.pipelines.report_pipeline(NAME, 0, progress(1))
    assert await one.pipelines.read_pipeline(NAME) == Pipeline(), "a report makes no record"
    with pytest.raises(CoordinatorConflictError, match="never allowed"):
        await one.pipelines.report_pipeline(NAME, 1, progress(1))
    assert await one.pipelines.read_pipeline(NAME) == Pipeline()


async def test_the_fence_only_rises_and_others_see_it_at_once(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.pipelines.raise_pipeline_epoch(NAME, 3)
    await one.pipelines.raise_pipeline_epoch(NAME, 3)
    assert await two.pipelines.read_pipeline(NAME) == Pipeline(3)
    with pytest.raises(CoordinatorConflictError, match="3 is in force already"):
        await two.pipelines.raise_pipeline_epoch(NAME, 2)
    assert await two.pipelines.read_pipeline("lake.other") == Pipeline()


async def test_only_the_run_in_force_reports(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.pipelines.raise_pipeline_epoch(NAME, 3)
    with pytest.raises(CoordinatorConflictError, match="3 is in force"):
        await two.pipelines.report_pipeline(NAME, 0, progress(9))
    await two.pipelines.report_pipeline(NAME, 3, progress(10))
    await one.pipelines.raise_pipeline_epoch(NAME, 4)
    assert await two.pipelines.read_pipeline(NAME) == Pipeline(4), "told by a run that is over"
    with pytest.raises(CoordinatorConflictError, match="4 is in force"):
        await two.pipelines.report_pipeline(NAME, 3, progress(11))
    with pytest.raises(CoordinatorConflictError, match="never allowed"):
        await two.pipelines.report_pipeline(NAME, 5, progress(11))
    assert await one.pipelines.read_pipeline(NAME) == Pipeline(4)


async def test_of_a_raise_and_a_report_at_once_none_is_lost(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.pipelines.raise_pipeline_epoch(NAME, 1)
    for epoch in range(2, 12):
        raised, _ = await asyncio.gather(
            one.pipelines.raise_pipeline_epoch(NAME, epoch),
            two.pipelines.report_pipeline(NAME, epoch - 1, progress(epoch)),
            return_exceptions=True,
        )
        assert raised is None
        assert (await two.pipelines.read_pipeline(NAME)).epoch == epoch


async def test_a_damaged_record_is_named_and_not_written_over(registry: Registry) -> None:
    one = await registry.join()
    await one.pipelines.raise_pipeline_epoch(NAME, 3)
    await registry.write(f"/imago/imago/pipelines/{NAME}", b'{"epoch":-1}')
    with pytest.raises(RegistryDamagedError, match="epoch: -1"):
        await one.pipelines.read_pipeline(NAME)
    with pytest.raises(RegistryDamagedError, match=NAME):
        await one.pipelines.raise_pipeline_epoch(NAME, 9)
