"""Offsets of static topics: what is asked of brokers that have a queue, and what follows from it.

Each function yields questions and gets their answers; what it returns is the client's. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.model.topics.static_topics import QueueRun, at, following
from imago_broker.processors.rocketmq.exchange import Reply, RequestError
from imago_broker.processors.rocketmq.groups.offsets import BOUNDS_FIELD
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    Steps = Generator["Question", Reply, Reply]

UNDECIDED: Final = "the queue is just being moved to this broker: it is not decided where it begins"


class Question(NamedTuple):
    """What has to be asked of the broker that has a run."""

    run: QueueRun
    code: int
    ext: Mapping[str, str]


def number(ext: Mapping[str, str], name: str) -> int:
    try:
        return int(ext.get(name, ""))
    except ValueError:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the field {name} has to be a whole number"
        ) from None


def _of_run(ext: Mapping[str, str], run: QueueRun) -> dict[str, str]:
    asked = {**ext, "queueId": str(run.queue_id)}
    asked.pop(BOUNDS_FIELD, None)  # those of the shard's queues, which are no queues of the topic
    return asked


def _offset(offset: int) -> Reply:
    return Reply(ext={"offset": str(offset)})


def _offset_in(reply: Reply) -> int:
    return int((reply.ext or {}).get("offset", "-1"))


def _decided(runs: Sequence[QueueRun]) -> list[QueueRun]:
    found = [run for run in runs if run.decided]
    if not found:
        raise RequestError(ResponseCode.SYSTEM_ERROR, UNDECIDED)
    return found


def _end(ext: Mapping[str, str], runs: Sequence[QueueRun]) -> Steps:
    """GET_MAX_OFFSET: of the last run."""
    run = runs[-1]
    if not run.decided:
        raise RequestError(ResponseCode.SYSTEM_ERROR, UNDECIDED)
    reply = yield Question(run, Code.GET_MAX_OFFSET, _of_run(ext, run))
    if reply.code != ResponseCode.SUCCESS:
        return reply
    return replace(reply, ext={**(reply.ext or {}), "offset": str(run.logical(_offset_in(reply)))})


def _smallest(ext: Mapping[str, str], runs: Sequence[QueueRun]) -> Steps:
    """GET_MIN_OFFSET: of the first run."""
    run = _decided(runs)[0]
    reply = yield Question(run, Code.GET_MIN_OFFSET, _of_run(ext, run))
    if reply.code != ResponseCode.SUCCESS:
        return reply
    return _offset(run.logical_within(_offset_in(reply)))


def _earliest(ext: Mapping[str, str], runs: Sequence[QueueRun]) -> Steps:
    """GET_EARLIEST_MSG_STORETIME: of the first run."""
    run = _decided(runs)[0]
    return (yield Question(run, Code.GET_EARLIEST_MSG_STORETIME, _of_run(ext, run)))


def _by_time(ext: Mapping[str, str], runs: Sequence[QueueRun]) -> Steps:
    """SEARCH_OFFSET_BY_TIMESTAMP: in the first run that has anything so late."""
    *earlier, last = _decided(runs)
    for run in earlier:
        reply = yield Question(run, Code.SEARCH_OFFSET_BY_TIMESTAMP, _of_run(ext, run))
        if reply.code != ResponseCode.SUCCESS:
            return reply
        told = yield Question(run, Code.GET_MAX_OFFSET, _of_run(ext, run))
        if told.code != ResponseCode.SUCCESS:
            return told
        if 0 <= _offset_in(reply) < _offset_in(told):
            return _offset(run.logical(_offset_in(reply)))
    reply = yield Question(last, Code.SEARCH_OFFSET_BY_TIMESTAMP, _of_run(ext, last))
    if reply.code != ResponseCode.SUCCESS:
        return reply
    return _offset(last.logical(_offset_in(reply)))


def _query(ext: Mapping[str, str], runs: Sequence[QueueRun]) -> Steps:
    """QUERY_CONSUMER_OFFSET: where the group came to in the last run in which it was."""
    decided = _decided(runs)
    if len(decided) == 1 and not decided[0].logic_offset:
        run = decided[0]
        reply = yield Question(run, Code.QUERY_CONSUMER_OFFSET, _of_run(ext, run))
        return reply
    for run in reversed(decided):
        asked = {**_of_run(ext, run), "setZeroIfNotFound": "false"}
        reply = yield Question(run, Code.QUERY_CONSUMER_OFFSET, asked)
        if reply.code == ResponseCode.SUCCESS:
            return _offset(run.logical(_offset_in(reply)))
        if reply.code != ResponseCode.QUERY_NOT_FOUND:
            return reply
    raise RequestError(
        ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first"
    )


def update(ext: Mapping[str, str], runs: Sequence[QueueRun]) -> Steps:
    """UPDATE_CONSUMER_OFFSET: in the run that has the offset."""
    offset = number(ext, "commitOffset")
    run = at(_decided(runs), offset)
    assert run is not None, "one is decided"
    physical = max(0, run.physical(offset))
    asked = {**_of_run(ext, run), "commitOffset": str(physical)}
    return (yield Question(run, Code.UPDATE_CONSUMER_OFFSET, asked))


STEPS: Final[Mapping[int, Callable[[Mapping[str, str], Sequence[QueueRun]], Steps]]] = {
    Code.GET_MAX_OFFSET: _end,
    Code.GET_MIN_OFFSET: _smallest,
    Code.GET_EARLIEST_MSG_STORETIME: _earliest,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _by_time,
    Code.QUERY_CONSUMER_OFFSET: _query,
    Code.UPDATE_CONSUMER_OFFSET: update,
}
_ENDS: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def pulled(reply: Reply, runs: Sequence[QueueRun], run: QueueRun, asked: int) -> Reply:
    """Return what a pull from a run says of the global queue; `asked`: the run's own offset."""
    ext = dict(reply.ext or {})
    if "nextBeginOffset" not in ext:
        return reply
    begin, low, high = (int(ext[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset"))
    code = reply.code
    if code in _ENDS and asked < low:
        # What is gone from the first run moves the client; between others it is no gap of its own.
        is_first = run.generation == _decided(runs)[0].generation
        begin = low
        code = ResponseCode.PULL_OFFSET_MOVED if is_first else ResponseCode.PULL_RETRY_IMMEDIATELY
    elif code in _ENDS and run is not runs[-1] and asked >= high:
        later = following(runs, run)
        code = ResponseCode.PULL_NOT_FOUND
        if later is not None:
            run, begin, low, high = later, later.start_offset, later.start_offset, 0
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
    if run.end_offset > run.start_offset:
        begin = min(begin, run.end_offset)
    ext |= {
        "nextBeginOffset": str(run.logical(begin)),
        "minOffset": str(run.logical(max(run.start_offset, low))),
        "maxOffset": str(max(run.logical(high), runs[-1].logic_offset)),
        "offsetDelta": str(run.delta),
    }
    return replace(reply, code=code, ext=ext)
