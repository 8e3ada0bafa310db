"""MetaQ's real-time statistics: events and their sums by command and topic, since a reset."""

from __future__ import annotations

PUT = "put"
GET = "get"
OFFSET = "offset"
GET_MISS = "get_miss"
GET_FAILED = "get_failed"
PUT_FAILED = "put_failed"
MESSAGE_SIZE = "message_size"

RESET_MS = 30 * 60_000
TOPICS_MAX = 10_000
"""Gets may name any topic: those beyond this are counted in the totals of the command only."""


class RealTimeStatistics:
    """Counts and sums. MetaQ also keeps a third key, which none of its answers shows."""

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._totals: dict[str, list[int]] = {}
        self._topics: dict[str, dict[str, list[int]]] = {}

    def add(self, command: str, topic: str, count: int = 1, value: int = 1) -> None:
        """Note `count` events of a command on a topic whose values sum to `value`."""
        total = self._totals.get(command)
        if total is None:
            total = self._totals[command] = [0, 0]
            self._topics[command] = {}
        total[0] += count
        total[1] += value
        topics = self._topics[command]
        pair = topics.get(topic)
        if pair is None:
            if len(topics) >= TOPICS_MAX:
                return
            pair = topics[topic] = [0, 0]
        pair[0] += count
        pair[1] += value

    def of_command(self, command: str, now_ms: int) -> str:
        """Return the text for a command over all topics; ``null`` when it was never seen."""
        self._reset_when_due(now_ms)
        total = self._totals.get(command)
        return "null" if total is None else self._text(total, now_ms)

    def of_topic(self, command: str, topic: str, now_ms: int) -> str:
        """Return the text for a command on one topic."""
        self._reset_when_due(now_ms)
        if command not in self._totals:
            return "null"
        pair = self._topics[command].get(topic)
        return f"Invalid keyTwo:{topic}" if pair is None else self._text(pair, now_ms)

    def reset(self, now_ms: int) -> None:
        """Begin again."""
        self._since_ms = now_ms
        self._totals.clear()
        self._topics.clear()

    def _reset_when_due(self, now_ms: int) -> None:
        if now_ms - self._since_ms >= RESET_MS:
            self.reset(now_ms)

    def _text(self, pair: list[int], now_ms: int) -> str:
        count, value = pair
        duration = (now_ms - self._since_ms) // 1000
        mean = _quotient(value, count)
        rate = _quotient(count, duration)
        return (
            f"Count={count},Value={value},Value/Count={mean},"
            f"Count/Duration={rate},Duration={duration}"
        )


def _quotient(value: int, by: int) -> str:
    """Return the quotient with at most two decimals and no trailing zeros."""
    if by == 0:
        return "invalid"
    return f"{value / by:.2f}".rstrip("0").rstrip(".")
