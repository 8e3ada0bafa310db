"""How a pull ended: what the answer says, and whether a pull that is held goes on waiting."""

from __future__ import annotations

import pytest

from imago_broker.processors.rocketmq.pull.pull_outcome import (
    REDIRECT_FIELD,
    PullOutcome,
    PullResult,
    result_of,
)
from imago_broker.service.groups.channel import Reply
from imago_log.results import ReadStatus
from imago_wire.remoting.codes import ResponseCode

CODES = {
    PullResult.FOUND: ResponseCode.SUCCESS,
    PullResult.NOTHING: ResponseCode.PULL_NOT_FOUND,
    PullResult.PASSED_OVER: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullResult.COMING: ResponseCode.SYSTEM_BUSY,
    PullResult.AWAY: ResponseCode.SYSTEM_BUSY,
    PullResult.OFFSET_MOVED: ResponseCode.PULL_OFFSET_MOVED,
    PullResult.RESET: ResponseCode.PULL_OFFSET_MOVED,
}


@pytest.mark.parametrize("result", CODES)
def test_an_answer_names_the_offsets_whatever_came_of_the_pull(result: PullResult) -> None:
    outcome = PullOutcome(result=result, next_offset=7, min_offset=3, max_offset=9, suggested=2)
    reply = outcome.reply()
    assert reply.code == CODES[result]
    assert reply.ext == {
        "suggestWhichBrokerId": "2",
        "nextBeginOffset": "7",
        "minOffset": "3",
        "maxOffset": "9",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def test_a_redirected_pull_stays_where_it_is_and_says_so_to_our_own_clients() -> None:
    reply = PullOutcome.redirected(5, master=2).reply()
    assert (reply.code, reply.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NOT_THE_MASTER")
    assert reply.ext is not None
    assert reply.ext[REDIRECT_FIELD] == "true"
    assert (reply.ext["nextBeginOffset"], reply.ext["suggestWhichBrokerId"]) == ("5", "2")


def test_a_refusal_is_the_answer() -> None:
    refusal = Reply(ResponseCode.TOPIC_NOT_EXIST, "gone")
    outcome = PullOutcome.refused(refusal)
    assert outcome.reply() is refusal
    assert not outcome.may_wait


def test_only_a_pull_that_got_nothing_for_it_goes_on_waiting() -> None:
    waits = {result for result in PullResult if PullOutcome(result=result).may_wait}
    assert waits == {
        *(PullResult.NOTHING, PullResult.COMING),
        *(PullResult.PASSED_OVER, PullResult.REDIRECTED),
    }


@pytest.mark.parametrize("status", ReadStatus)
def test_every_status_of_a_read_means_something(status: ReadStatus) -> None:
    assert result_of(status, 1) in CODES


def test_nobody_is_sent_back_from_the_start_of_a_new_queue() -> None:
    assert result_of(ReadStatus.NO_MESSAGE_IN_QUEUE, 0) is PullResult.NOTHING
    assert result_of(ReadStatus.NO_MESSAGE_IN_QUEUE, 4) is PullResult.OFFSET_MOVED
