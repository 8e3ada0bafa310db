"""What runs of pipelines ask: whether they may still write. And what they tell: how far they are.

They ask the name service, as KV settings of the namespace IMAGO_PIPELINES, since that is where
clients are pointed to and needs no credentials. A run can only tell of itself: what ends one run
and allows the next is `POST /admin/v1/pipelines/{name}/epoch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from imago_broker.model.pipelines import is_pipeline_name, read_number, read_progress
from imago_broker.ports import CoordinatorConflictError
from imago_broker.processors.rocketmq.exchange import Reply, RequestError
from imago_wire.errors import WrongError, in_our_words
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from imago_broker.model.pipelines import PipelineProgress
    from imago_broker.ports import PipelineRecords

VALUE_SIZE_MAX: Final = 1024


def tell(records: PipelineRecords, name: str) -> Coroutine[Any, Any, Reply]:
    """Return the answer to who asks for a pipeline: its record as JSON."""
    _check_name(name)

    async def told() -> Reply:
        found = await records.read_pipeline(name)
        return Reply(ext={"value": orjson.dumps(found.to_json()).decode()})

    return told()


def note(records: PipelineRecords, name: str, value: str) -> Coroutine[Any, Any, Reply]:
    """Return the answer to a run's `{"epoch":…,"rows":…,"lag":…,"batch":…,"at":…}`."""
    _check_name(name)
    epoch, progress = _read(value)

    async def noted() -> Reply:
        try:
            await records.report_pipeline(name, epoch, progress)
        except CoordinatorConflictError as error:
            return Reply(ResponseCode.IMAGO_PRODUCER_FENCED, str(error)[:512])
        return Reply()

    return noted()


def _check_name(name: str) -> None:
    if not is_pipeline_name(name):
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name!r:.80} is no name of a pipeline")


def _read(value: str) -> tuple[int, PipelineProgress]:
    try:
        told = _object(value)
        return read_number(told, "epoch"), read_progress(told)
    except ValueError as error:
        reason = in_our_words(error, "no JSON object")
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"progress: {reason}") from error


def _object(value: str) -> dict[str, Any]:
    if len(value) > VALUE_SIZE_MAX:
        raise WrongError(f"{len(value)} characters, at most {VALUE_SIZE_MAX} are taken")
    told = orjson.loads(value)
    if isinstance(told, dict):
        return told
    raise WrongError("no JSON object")
