"""Errors of the broker, by what happens next."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a broker process ends, as a supervisor sees it."""

    CLEAN = 0
    UNEXPECTED = 1
    USAGE = 2
    DATA = 3
    IO = 4
    FENCED = 5


class BrokerError(Exception):
    """Any error that the broker raises on purpose."""


class FatalError(BrokerError):
    """The process cannot go on: it stops in order and ends with `exit_code`."""

    def __init__(self, message: str, *, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class RequestError(BrokerError):
    """The client asked for something that it cannot have: answer it and go on."""


class InvalidNameError(RequestError):
    """A topic or group may not be called so."""


class ShardDrainedError(RequestError):
    """The shard is recorded as drained: a topic that it took could be removed with it."""


class TopicExistsError(RequestError):
    """The topic exists already, with other settings than those asked for."""


class HidesMessagesError(RequestError):
    """Readers would no longer find queues that hold messages, and nobody said that they may go."""

    def __init__(self, topic: str, *, messages: int, kept: int, queues: int) -> None:
        super().__init__(
            f"topic {topic}: with {kept} of its {queues} queues left to read, "
            f"{messages} {'message' if messages == 1 else 'messages'} would be hidden"
        )
        self.messages = messages
