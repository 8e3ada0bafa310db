"""What administrators ask of the member: each request is carried out once, however often asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.core.shard import effects as do

if TYPE_CHECKING:
    from collections.abc import Callable

REQUESTS_MAX = 100
"""Requests of administrators that are remembered."""
STOPS = "this broker stops"


class Requests:
    """The answers by request; those that are done are kept for who asks again."""

    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Future[do.Answer]] = {}

    async def ask(
        self, request: str, begin: Callable[[], None], *, stopped: bool
    ) -> tuple[bool, str]:
        """Return the answer; `begin` is called for a request that is not known."""
        answer = self._answers.get(request)
        if answer is None:
            if stopped:
                return False, STOPS
            if len(self._answers) >= REQUESTS_MAX:
                oldest, text = next(iter(self._answers)), "too many requests came after it"
                self.answered(do.Answer(oldest, done=False, text=text))
                del self._answers[oldest]
            answer = self._answers[request] = asyncio.get_running_loop().create_future()
            begin()
        found = await asyncio.shield(answer)
        return found.done, found.text

    def answered(self, answer: do.Answer) -> None:
        """Give who waits the state machine's answer."""
        waiting = self._answers.get(answer.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def close(self) -> None:
        """Answer all who still wait."""
        for request in self._answers:
            self.answered(do.Answer(request, done=False, text=STOPS))
