"""Operations of one run of a pipeline: whether it may still write, and how far it is.

The name service keeps what is known of pipelines as settings of the namespace IMAGO_PIPELINES.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imago_client.core.lookup import ask_name_service
from imago_client.errors import AnswerError, BrokerError, ProducerFencedError
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.namesrv import GetKVConfigRequestHeader, PutKVConfigRequestHeader

if TYPE_CHECKING:
    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState

NAMESPACE: Final = "IMAGO_PIPELINES"


def check_run(state: ClientState, pipeline: str, epoch: int) -> Operation[None]:
    """Return if the run of this epoch may write. ProducerFencedError: another one may."""
    asked = GetKVConfigRequestHeader(namespace=NAMESPACE, key=pipeline)
    answer = yield from ask_name_service(state, RequestCode.GET_KV_CONFIG, asked)
    where = state.name_servers()[0]
    try:
        stands = int(json.loads(answer.ext["value"])["epoch"])
    except (KeyError, TypeError, ValueError) as error:
        raise AnswerError(where, f"no epoch of pipeline {pipeline!r}: {error}") from error
    if stands != epoch:
        raise ProducerFencedError(
            where,
            ResponseCode.IMAGO_PRODUCER_FENCED,
            f"epoch {epoch} of pipeline {pipeline!r}: {stands} is in force",
        )


def report_run(
    state: ClientState, pipeline: str, epoch: int, *, rows: int, lag: int, batch: int
) -> Operation[None]:
    """Say how far the run of this epoch is. ProducerFencedError: another one may write."""
    told = {"epoch": epoch, "rows": rows, "lag": lag, "batch": batch, "at": state.clock_ms()}
    header = PutKVConfigRequestHeader(namespace=NAMESPACE, key=pipeline, value=json.dumps(told))
    try:
        yield from ask_name_service(state, RequestCode.PUT_KV_CONFIG, header)
    except BrokerError as error:
        if error.code == ResponseCode.IMAGO_PRODUCER_FENCED:
            raise ProducerFencedError(error.address, error.code, error.remark) from error
        raise
