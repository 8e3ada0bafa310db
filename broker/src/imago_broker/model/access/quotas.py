"""Limits per tenant: how much a user, a topic, or all that begin alike may take. Pure values.

A subject is a user, a topic, or the topics or groups whose names begin alike; those of a prefix
share its limits. What is not named has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from imago_broker.model.access.access import NAME_SIZE_MAX, AccessKind
from imago_broker.model.access.users import ANONYMOUS, name_problem
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.model.access.access import Need

QUOTAS_MAX: Final = 10_000
"""Subjects that have some."""
LIMIT_MAX: Final = 1 << 53


class Limit(StrEnum):
    """What is limited; rates and connections are those of each broker, the others of a shard."""

    PRODUCER_BYTES = "producerBytesPerSecond"
    PRODUCER_REQUESTS = "producerRequestsPerSecond"
    CONSUMER_BYTES = "consumerBytesPerSecond"
    CONSUMER_REQUESTS = "consumerRequestsPerSecond"
    CONNECTIONS = "connections"
    CONNECTIONS_PER_ADDRESS = "connectionsPerAddress"
    TOPICS = "topics"
    QUEUES = "queues"
    GROUPS = "groups"


class SubjectKind(StrEnum):
    """Whose limits they are."""

    USER = "user"
    TOPIC = "topic"
    GROUP = "group"


RATES: Final = (
    Limit.PRODUCER_BYTES,
    Limit.PRODUCER_REQUESTS,
    Limit.CONSUMER_BYTES,
    Limit.CONSUMER_REQUESTS,
)
_OF_TRAFFIC: Final = frozenset((*RATES, Limit.CONNECTIONS, Limit.CONNECTIONS_PER_ADDRESS))
_KNOWN: Final[Mapping[tuple[SubjectKind, bool], tuple[Limit, ...]]] = {
    (SubjectKind.USER, False): (*RATES, Limit.CONNECTIONS, Limit.CONNECTIONS_PER_ADDRESS),
    (SubjectKind.TOPIC, False): RATES,
    (SubjectKind.TOPIC, True): (*RATES, Limit.TOPICS, Limit.QUEUES),
    (SubjectKind.GROUP, True): (Limit.GROUPS,),
}
"""What may be limited of each kind of subject, whole names and prefixes."""

Quotas = Mapping[Limit, int]


@dataclass(frozen=True, slots=True, order=True)
class QuotaSubject:
    """Whose limits they are; `str` gives its words, `user:ann` or `topic:orders*`."""

    kind: SubjectKind
    name: str
    prefix: bool = False

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}{'*' if self.prefix else ''}"

    def covers(self, name: str) -> bool:
        """Whether something of its kind with this name has its limits."""
        return name.startswith(self.name) if self.prefix else name == self.name


def subject_of_user(name: str) -> QuotaSubject:
    """Return the subject that a user is."""
    return QuotaSubject(SubjectKind.USER, name)


def parse_subject(text: str) -> QuotaSubject:
    """Read `user:NAME`, `topic:NAME`, `topic:PREFIX*`, `group:PREFIX*`. ValueError: it is none."""
    kind, _, name = text.partition(":")
    prefix = name.endswith("*")
    known = next((each for each in SubjectKind if each.value == kind), None)
    if known is None or (known, prefix) not in _KNOWN:
        raise WrongError(
            f"{text!a:.80} is nothing that has limits: user:NAME, topic:NAME, topic:PREFIX*,"
            " group:PREFIX*"
        )
    name = name.removesuffix("*")
    problem = _name_problem(known, name)
    if problem:
        raise WrongError(problem)
    return QuotaSubject(known, name, prefix)


def _name_problem(kind: SubjectKind, name: str) -> str | None:
    if kind is SubjectKind.USER:
        return None if name == ANONYMOUS else name_problem(name)
    if not name or len(name) > NAME_SIZE_MAX:
        return f"a {kind} has a name of 1 to {NAME_SIZE_MAX} characters"
    if not name.isascii() or not name.isprintable() or "*" in name or " " in name:
        return f"{name!a:.80} is no name: printable ASCII, and only its ending is left open"
    return None


def quotas_from_json(subject: QuotaSubject, value: object) -> dict[Limit, int]:
    """Read `{limit: number}`. ValueError names what is wrong in it."""
    known = _KNOWN[subject.kind, subject.prefix]
    if not isinstance(value, dict):
        raise WrongError(f"quotas are an object with {', '.join(known)}")
    found: dict[Limit, int] = {}
    for name, number in value.items():
        limit = next((each for each in known if each.value == name), None)
        if limit is None:
            raise WrongError(f"{subject} has no limit {name!a:.60}: {', '.join(known)}")
        if type(number) is not int or not 0 < number <= LIMIT_MAX:
            raise WrongError(f"{name}: {number!r:.40}, must be a whole number above 0")
        found[limit] = number
    return found


def quotas_to_json(quotas: Quotas) -> dict[str, int]:
    """Return `quotas_from_json`'s form."""
    return {limit.value: quotas[limit] for limit in Limit if limit in quotas}


class QuotaTable:
    """All limits, found by what they are about. Never changed: new ones make a new table."""

    def __init__(self, quotas: Mapping[QuotaSubject, Quotas]) -> None:
        self.quotas = dict(quotas)
        self._whole: dict[tuple[SubjectKind, str], QuotaSubject] = {}
        self._prefixes: dict[SubjectKind, list[QuotaSubject]] = {}
        for subject in sorted(quotas):
            if subject.prefix:
                self._prefixes.setdefault(subject.kind, []).append(subject)
            else:
                self._whole[subject.kind, subject.name] = subject
        self._limit_traffic = any(_OF_TRAFFIC & set(each) for each in quotas.values())

    def about(self, kind: SubjectKind, name: str) -> list[QuotaSubject]:
        """Return the subjects whose limits something of this name has."""
        whole = self._whole.get((kind, name))
        found = [whole] if whole is not None else []
        found += (each for each in self._prefixes.get(kind, ()) if name.startswith(each.name))
        return found

    def of_traffic(self, user: str, topic: str) -> list[QuotaSubject]:
        """Return those that limit what a user sends to a topic, or reads of it."""
        if not self._limit_traffic:
            return []
        found = self.about(SubjectKind.USER, user)
        if topic:
            found += self.about(SubjectKind.TOPIC, topic)
        return [each for each in found if _OF_TRAFFIC & set(self.quotas[each])]

    def limits(self, user: str, need: Need) -> bool:
        """Whether a user, or the topic that it asks about, has limits to check."""
        topic = need.name if need.kind is AccessKind.TOPIC else ""
        return self._limit_traffic and bool(self.of_traffic(user, topic))

    def grown(
        self, limit: Limit, subjects: Iterable[QuotaSubject]
    ) -> list[tuple[QuotaSubject, int]]:
        """Return those of the subjects that have this limit, with it."""
        return [(s, self.quotas[s][limit]) for s in subjects if limit in self.quotas[s]]


NO_QUOTAS: Final = QuotaTable({})
