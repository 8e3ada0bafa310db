"""Records of pipelines: the fence between their runs.

`/imago/<cluster>/pipelines/<name>`: `{"epoch":3,"progress":{"rows":0,"lag":0,"batch":0,"at":0}}`.
Nobody watches them: who asks, asks the ensemble.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from imago_broker.cluster.znodes import decode
from imago_broker.model.pipelines import Pipeline, PipelineProgress, read_number, read_progress
from imago_broker.ports import CoordinatorConflictError

if TYPE_CHECKING:
    from imago_broker.cluster.edits.shared import Edit


def encode_pipeline(pipeline: Pipeline) -> bytes:
    return orjson.dumps(pipeline.to_json())


def decode_pipeline(path: str, data: bytes) -> Pipeline:
    def read(value: dict[str, Any]) -> Pipeline:
        progress = value.get("progress")
        return Pipeline(read_number(value, "epoch"), read_progress(progress) if progress else None)

    return decode(path, data, dict, read)


def raising(path: str, name: str, epoch: int) -> Edit:
    """Raise the fence, and drop the progress reported before: that run is over."""

    def edit(data: bytes | None) -> bytes | None:
        stands = Pipeline() if data is None else decode_pipeline(path, data)
        if stands.epoch > epoch:
            raise CoordinatorConflictError(over(name, epoch, stands.epoch))
        return None if stands.epoch == epoch else encode_pipeline(Pipeline(epoch))

    return edit


def reporting(path: str, name: str, epoch: int, progress: PipelineProgress) -> Edit:
    """Note what the run of this epoch says, and of no other.

    Epoch 0 is in force until somebody raises it. What its run says is kept only if there is a
    record already: callers without a right to raise epochs make none.
    """

    def edit(data: bytes | None) -> bytes | None:
        stands = Pipeline() if data is None else decode_pipeline(path, data)
        if stands.epoch > epoch:
            raise CoordinatorConflictError(over(name, epoch, stands.epoch))
        if stands.epoch < epoch:
            raise CoordinatorConflictError(
                f"epoch {epoch} of pipeline {name!r} was never allowed: {stands.epoch} is in force"
            )
        return None if data is None else encode_pipeline(replace(stands, progress=progress))

    return edit


def over(name: str, epoch: int, stands: int) -> str:
    return f"epoch {epoch} of pipeline {name!r} is over: {stands} is in force already"
