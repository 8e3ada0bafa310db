"""What stands before the handlers for static topics: from global queues to brokers' own.

A request for a global queue is answered by whoever has its last run. Messages of earlier runs, and
offsets in them, come from the brokers that have those, by a request of this broker's that says
`lo=false`: its queue is the broker's own. The handlers know nothing of it. Whether the client may
have them is decided here, before: the request to another broker is this broker's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from imago_broker.model.topics.static_topics import QueueRun, StaticMapping, at
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.pull.pull_request import FLAG_COMMIT, FLAG_SUSPEND
from imago_broker.processors.rocketmq.rows import reply_of
from imago_broker.processors.rocketmq.static.static_steps import (
    STEPS,
    UNDECIDED,
    Question,
    number,
    pulled,
    update,
)
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import FLAG_ONEWAY
from imago_wire.remoting.signing import unsigned

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from imago_broker.model.access.users import Introduced
    from imago_broker.processors.rocketmq.rows import Handler, Row
    from imago_broker.processors.rocketmq.static.static_steps import Steps
    from imago_broker.service.topics.static_topics import StaticTopics

LOGICAL: Final = "lo"
"""`false`: the queue is the broker's own."""
SENDS: Final = {Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE}
PULLS: Final = {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE}
SERVED: Final = {*SENDS, *PULLS, *STEPS}
NOT_HERE: Final = "%s-%d does not exit in request process of current broker %s"
"""RocketMQ's words."""


class OtherBrokers(Protocol):
    """The brokers that have earlier runs, or the message that is asked for."""

    async def ask(
        self,
        broker: str,
        code: int,
        ext: Mapping[str, str],
        client: Introduced | None = None,
        *,
        body: bytes = b"",
    ) -> Reply:
        """Return a broker's answer; whatever keeps it from answering is an answer, too.

        `client`: for whom; None: for this broker itself.
        """
        ...


class _Names(NamedTuple):
    topic: str
    queue: str


_LONG, _SHORT = _Names("topic", "queueId"), _Names("b", "e")


class _Local(Exchange):
    """A request with a queue of the broker's own; its answer is that of the one it stands for."""

    def __init__(
        self, outer: Exchange, ext: Mapping[str, str], then: Callable[[Reply], Reply]
    ) -> None:
        command = replace(outer.command, ext=dict(ext), flag=outer.command.flag & ~FLAG_ONEWAY)
        super().__init__(outer.channel, command)
        self.user, self.sender = outer.user, outer.sender
        self._outer, self._then = outer, then

    def answer(self, reply: Reply) -> None:
        if not self.answered:
            self.answered = True
            self._outer.answer(self._then(reply))

    def finish(self) -> None:
        self.answered = True
        self._outer.finish()


class StaticFront:
    """Serves requests for static topics, and leaves all others to their handlers."""

    def __init__(
        self,
        static_topics: StaticTopics,
        others: OtherBrokers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._statics, self._others, self._loop = static_topics, others, loop
        self._handlers: dict[int, Handler] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def before(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows that look whether a request is for a static topic."""
        return [self._before(row) if row.code in SERVED else row for row in rows]

    def _before(self, row: Row) -> Row:
        self._handlers[row.code] = row.handle

        def handled(exchange: Exchange) -> Reply | None:
            ext = exchange.ext
            fields = _SHORT if "b" in ext and "topic" not in ext else _LONG
            topic = ext.get(fields.topic, "")
            if topic not in self._statics or ext.get(LOGICAL) == "false":
                return row.handle(exchange)
            mapping = self._statics.get(topic)
            assert mapping is not None, "it is one of them"
            return self._serve(exchange, mapping, fields)

        return replace(row, handle=handled)

    def _serve(self, exchange: Exchange, mapping: StaticMapping, fields: _Names) -> Reply | None:
        code = exchange.command.code
        queue = number(exchange.ext, fields.queue)
        if code in SENDS and queue < 0:
            queue = next(filter(mapping.leads, mapping.hosted), queue)
        if not mapping.leads(queue):
            text = NOT_HERE % (mapping.topic, queue, mapping.broker)
            raise RequestError(ResponseCode.NOT_LEADER_FOR_QUEUE, text)
        runs = mapping.hosted[queue]
        if code in SENDS:
            return self._send(exchange, runs[-1], queue, fields)
        if code in PULLS:
            return self._pull(exchange, mapping, runs)
        return self._follow(exchange, mapping.broker, STEPS[code](exchange.ext, runs))

    def _send(self, exchange: Exchange, run: QueueRun, queue: int, fields: _Names) -> Reply | None:
        def then(reply: Reply) -> Reply:
            if not reply.ext or "queueOffset" not in reply.ext:
                return reply
            offset = run.logical_within(int(reply.ext["queueOffset"]))
            told = {**reply.ext, "queueId": str(queue), "queueOffset": str(offset)}
            return replace(reply, ext=told)

        ext = {**exchange.ext, fields.queue: str(run.queue_id)}
        return self._own(exchange, exchange.command.code, ext, then)

    def _own(
        self,
        exchange: Exchange,
        code: int,
        ext: Mapping[str, str],
        then: Callable[[Reply], Reply],
    ) -> Reply | None:
        reply = reply_of(self._handlers[code], _Local(exchange, ext, then))
        return None if reply is None else then(reply)

    def _pull(
        self, exchange: Exchange, mapping: StaticMapping, runs: Sequence[QueueRun]
    ) -> Reply | None:
        ext = dict(exchange.ext)
        offset, flags = number(ext, "queueOffset"), number(ext, "sysFlag")
        run = at(runs, offset)
        if run is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, UNDECIDED)
        if flags & FLAG_COMMIT and number(ext, "commitOffset") >= 0:
            self._commit(exchange, mapping.broker, runs)
        flags &= ~FLAG_COMMIT
        if run is not runs[-1]:
            flags &= ~FLAG_SUSPEND  # nothing more comes there
        physical = run.physical(offset)
        ext |= {
            "queueId": str(run.queue_id),
            "queueOffset": str(physical),
            "sysFlag": str(flags),
            "commitOffset": "0",
        }

        def then(reply: Reply) -> Reply:
            return pulled(reply, runs, run, physical)

        if run.broker == mapping.broker:
            return self._own(exchange, exchange.command.code, ext, then)
        self._start(self._pull_there(exchange, Question(run, Code.PULL_MESSAGE, ext), then))
        return None

    async def _pull_there(
        self, exchange: Exchange, question: Question, then: Callable[[Reply], Reply]
    ) -> None:
        reply = await self._ask(question)
        answer = reply_of(lambda _: then(reply), exchange)
        assert answer is not None, "an answer becomes an answer"
        exchange.answer(answer)

    def _commit(self, exchange: Exchange, broker: str, runs: Sequence[QueueRun]) -> None:
        """Note how far the group is, as a pull says by the way."""
        steps = update(exchange.ext, runs)
        question = next(steps)
        if question.run.broker == broker:
            said = _Local(exchange, question.ext, _itself)
            reply_of(self._handlers[Code.UPDATE_CONSUMER_OFFSET], said)
        else:
            self._start(self._tell(question))

    async def _tell(self, question: Question) -> None:
        await self._ask(question)

    def _follow(self, exchange: Exchange, broker: str, steps: Steps) -> Reply | None:
        """Ask what is to be asked: at once where this broker has it all."""
        try:
            question = next(steps)
            while question.run.broker == broker:
                said = _Local(exchange, question.ext, _itself)
                reply = reply_of(self._handlers[question.code], said)
                assert reply is not None, "offsets are answered at once"
                question = steps.send(reply)
        except StopIteration as end:
            found: Reply = end.value
            return found
        self._start(self._follow_there(exchange, broker, steps, question))
        return None

    async def _follow_there(
        self,
        exchange: Exchange,
        broker: str,
        steps: Steps,
        question: Question,
    ) -> None:
        try:
            while True:
                if question.run.broker == broker:
                    said = _Local(exchange, question.ext, _itself)
                    reply = reply_of(self._handlers[question.code], said)
                    assert reply is not None, "offsets are answered at once"
                else:
                    reply = await self._ask(question)
                question = steps.send(reply)
        except StopIteration as end:
            exchange.answer(end.value)
        except RequestError as refusal:
            exchange.answer(refusal.reply)

    async def _ask(self, question: Question) -> Reply:
        ext = {**unsigned(question.ext), LOGICAL: "false", "bname": question.run.broker}
        return await self._others.ask(question.run.broker, question.code, ext)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _itself(reply: Reply) -> Reply:
    return reply
