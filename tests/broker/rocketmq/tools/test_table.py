"""The table of request codes: limits, refusals, hooks, mistakes, answered once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.rocketmq.exchange import Exchange, Lane, Reply, RequestError
from imago_broker.processors.rocketmq.rows import Handler, Row, Table, build_table
from imago_log.errors import DiskFullError
from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import FLAG_ONEWAY, RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.model.access.access import Need


class Answers:
    """A channel that keeps what it is told to answer."""

    peer = "10.0.0.1:1"

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def reply(self, request: RemotingCommand, reply: Reply) -> None:
        assert not request.is_oneway
        self.replies.append(reply)


def asked(table: Table, code: int = 7, *, flag: int = 0) -> tuple[Exchange, list[Reply]]:
    channel: Any = Answers()
    exchange = Exchange(channel, RemotingCommand(code=code, flag=flag))
    table.dispatch(exchange)
    return exchange, channel.replies


def one_row(handle: Handler, *, running_max: int = 10, **more: Any) -> Table:
    hooks: Sequence[Any] = more.pop("hooks", ())
    return build_table([Row(7, handle, Lane("lane", running_max), **more)], hooks)


def raising(error: Exception) -> Handler:
    def handle(_: Exchange) -> Reply:
        raise error

    return handle


def test_code_without_a_row_is_not_supported() -> None:
    _, replies = asked(one_row(lambda _: Reply()), 8)
    assert replies == [Reply(3, " request type 8 not supported")]


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (RequestError(17, "no", ext={"a": "b"}), Reply(17, "no", {"a": "b"})),
        (ProtocolError("header"), Reply(1, "header")),
        (ValueError("of a library"), Reply(1, "a value cannot be read")),
        (
            DiskFullError(used_ratio=1.0, limit_ratio=0.9),
            Reply(
                14,
                "service not available now: the broker's disk is full:"
                " disk 100.0% used, puts stop at 90.0%",
            ),
        ),
        (KeyError("secret"), Reply(1, "internal error, see the broker's log")),
        (RuntimeError("secret"), Reply(1, "internal error, see the broker's log")),
    ],
)
def test_what_a_handler_raises_is_answered(error: Exception, reply: Reply) -> None:
    table = one_row(raising(error))
    _, replies = asked(table)
    assert replies == [reply]
    assert table.lanes["lane"].running == 0


def test_long_texts_are_cut() -> None:
    _, replies = asked(one_row(raising(ProtocolError("x" * 10_000))))
    assert len(replies[0].remark or "") == 512


def test_one_way_requests_are_served_and_never_answered() -> None:
    served: list[Exchange] = []
    table = one_row(served.append)
    exchange, replies = asked(table, flag=FLAG_ONEWAY)
    exchange.answer(Reply(1))
    assert (len(served), replies, table.lanes["lane"].running) == (1, [], 0)
    assert asked(one_row(raising(ValueError())), flag=FLAG_ONEWAY)[1] == []
    assert asked(one_row(lambda _: Reply()), 8, flag=FLAG_ONEWAY)[1] == []


def test_lane_refuses_what_is_too_much_until_something_is_answered() -> None:
    table = one_row(lambda _: None, running_max=2)
    first, second = asked(table)[0], asked(table)[0]
    _, replies = asked(table)
    busy = Reply(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
    assert replies == [busy]
    first.answer(Reply())
    first.answer(Reply())
    assert asked(table)[1] == []
    assert asked(table)[1] == [busy]
    second.finish()
    assert asked(table)[1] == []


def test_second_answer_is_dropped() -> None:
    exchange, replies = asked(one_row(lambda _: Reply(5)))
    exchange.answer(Reply(6))
    assert replies == [Reply(5)]


def test_reject_rule_refuses_the_whole_kind() -> None:
    busy = [True]
    table = one_row(lambda _: Reply(), reject=lambda: busy[0])
    assert asked(table)[1] == [
        Reply(2, "[REJECTREQUEST]system busy, start flow control for a while")
    ]
    busy[0] = False
    assert asked(table)[1] == [Reply()]


class Guard:
    """A hook that refuses what it is told to, and remembers."""

    def __init__(self, refusal: RequestError | None = None) -> None:
        self.refusal = refusal
        self.seen: list[object] = []

    def before(self, exchange: Exchange) -> None:
        self.seen.append(exchange.command.code)
        if self.refusal is not None:
            raise self.refusal

    def require(self, exchange: Exchange, needs: Sequence[Need]) -> None:
        """Let it have this."""

    def after(self, _: Exchange, reply: Reply) -> None:
        self.seen.append(reply)


def test_hooks_see_requests_and_answers_and_may_refuse() -> None:
    served: list[Exchange] = []
    guard = Guard()
    assert asked(one_row(lambda _: Reply(5), hooks=(guard,)))[1] == [Reply(5)]
    assert guard.seen == [7, Reply(5)]
    refusing = Guard(RequestError(16, "denied"))
    table = one_row(served.append, hooks=(refusing,))
    assert asked(table)[1] == [Reply(16, "denied")]
    assert served == []


def test_fast_port_has_only_its_rows_and_shares_the_lanes() -> None:
    lane = Lane("lane", 1)
    rows = [Row(7, lambda _: None, lane), Row(8, lambda _: Reply(), lane, fast=False)]
    table = build_table(rows)
    fast = table.for_fast_port()
    assert asked(fast, 8)[1] == [Reply(3, " request type 8 not supported")]
    asked(fast, 7)
    assert asked(table, 8)[1][0].code == ResponseCode.SYSTEM_BUSY


def test_code_with_two_rows_is_our_own_mistake() -> None:
    lane = Lane("lane", 1)
    with pytest.raises(AssertionError, match="request code 7 has two rows"):
        build_table([Row(7, lambda _: None, lane), Row(7, lambda _: None, lane)])
