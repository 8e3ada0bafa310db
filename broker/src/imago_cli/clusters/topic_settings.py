"""`imago topic create` and `alter`: what `--set name=value` may say; what may have been meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Final

from imago_broker.model.names import PARTITIONS_MAX
from imago_broker.model.topics import topics
from imago_broker.model.topics.attributes import SETTABLE, attributes_problem
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    connected,
    refuse_system,
    unknown_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Option
from imago_cli.output import counted, print_json, say
from imago_client.errors import HidesMessagesError, NoTopicError, TopicExistsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.blocking import Client

SET_HELP: Final = f"A setting, as name=value: {', '.join(SETTABLE)}. Repeatable."
SHORT_MS: Final = 60_000
"""A plain number below it is more likely days, hours or seconds than milliseconds."""
_ARE_OPTIONS: Final = {"queues": "--queues", "partitions": "--queues", "perm": "--perm"}
Queues = Annotated[
    int | None,
    Option(
        least=1,
        most=PARTITIONS_MAX,
        help="Queues on each shard, in both protocols.",
        show_default=False,
    ),
]
Perm = Annotated[int | None, Option(help="4 read, 2 write, 6 both.", show_default=False)]
Settings = Annotated[list[str] | None, Option("--set", help=SET_HELP)]


def create(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    queues: Queues = None,
    perm: Perm = None,
    assignments: Settings = None,
    if_absent: Annotated[
        bool, Option(help="Accept an existing topic that has these settings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic on every shard. An existing one is an error."""
    refuse_system(topic)
    settings = attributes(assignments)
    with connected(bootstrap) as client:
        try:
            masters = _create(client, topic, queues, perm, settings)
            made = True
        except TopicExistsError as error:
            if not if_absent:
                cure = (
                    f"imago topic alter {topic} changes it; --if-absent takes it if it is the same"
                )
                raise CommandError(f"the topic {topic} exists already", cure=cure) from error
            masters = _create(client, topic, queues, perm, settings, exist_ok=True)
            made = False
        has = queues or _queues(client, topic)
    if as_json:
        print_json({"topic": topic, "queues": has, "shards": sorted(masters)})
    else:
        there = "" if made else ", there already"
        each = "each of " if len(masters) > 1 else ""
        shards = ", ".join(sorted(masters))
        say(f"topic {topic}: {counted(has, 'queue')} on {each}{shards}{there}")


def alter(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    queues: Queues = None,
    perm: Perm = None,
    assignments: Settings = None,
    hide_messages: Annotated[
        bool,
        Option("--hide-messages", help="Allow fewer queues even if they hide messages."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change the named settings of a topic, on every shard that has it; all others stay."""
    refuse_system(topic)
    settings = attributes(assignments)
    if queues is None and perm is None and not settings:
        raise CommandUsageError(
            "nothing to change is named", cure="--queues, --perm or --set name=value"
        )
    with connected(bootstrap) as client:
        try:
            hidden = client.admin.alter_topic(
                topic, queues=queues, perm=perm, attributes=settings, hide_messages=hide_messages
            )
        except NoTopicError as error:
            raise unknown_topic(topic, client.admin.topics()) from error
        except HidesMessagesError as error:
            cure = "keep the number of queues, or add --hide-messages"
            raise CommandError(str(error), cure=cure) from error
    if as_json:
        print_json({"topic": topic, "hiddenMessages": hidden})
    else:
        lost = f"; hidden from readers now: {counted(hidden, 'message')}" if hidden else ""
        say(f"topic {topic}: changed{lost}")


def _create(
    client: Client,
    topic: str,
    queues: int | None,
    perm: int | None,
    settings: dict[str, str],
    *,
    exist_ok: bool = False,
) -> dict[str, str]:
    try:
        return client.admin.create_topic(
            topic, queues=queues, perm=perm, attributes=settings, exist_ok=exist_ok
        )
    except TopicExistsError as error:
        if not exist_ok:
            raise
        cure = f"imago topic alter {topic} changes it"
        raise CommandError(error.remark, cure=cure) from error


def _queues(client: Client, topic: str) -> int:
    """Return how many queues a shard of the topic has, the most where they differ."""
    queues = client.pull_consumer("IMAGO_CLI").queues(topic)
    return max((queue.queue_id + 1 for queue in queues), default=0)


def attributes(assignments: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of `--set` as brokers take them; UsageError with a suggestion."""
    from imago_broker.config.sections.section import LEVELS  # no list of topics needs them
    from imago_broker.config.units import DURATION, kind_of, measured

    found: dict[str, str] = {}
    for text in assignments or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals:
            raise CommandUsageError(f"--set {text}: is not name=value", cure=f"{_example(name)}")
        if name not in SETTABLE:
            raise CommandUsageError(
                f"--set {text}: a topic has no setting {name}", cure=_nearest(name)
            )
        number = measured(name, value)
        if kind_of(name) is DURATION and value.isdecimal() and 0 < int(value) < SHORT_MS:
            raise CommandUsageError(
                f"--set {name}={value}: that is {value} ms",
                cure=f"write the unit: {name}={value}d, or {name}={value}ms if that is meant",
            )
        found[name] = value if number is None else str(number)
    if problem := attributes_problem(found, acknowledgements=frozenset(LEVELS)):
        name = problem.partition(":")[0]
        units = kind_of(name)
        cure = f"a whole number, or {units}" if units else "see docs/configuration.md"
        raise CommandUsageError(f"--set {problem.replace(' without a unit', '')}", cure=cure)
    return found


def _nearest(name: str) -> str:
    if option := _ARE_OPTIONS.get(name):
        return f"give {option}"
    near = difflib.get_close_matches(name.lower().replace("_", "."), SETTABLE, n=1)
    if not near and len(name) > 2:
        near = [one for one in SETTABLE if name.lower() in one]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"there are {', '.join(SETTABLE)}"


def _example(name: str) -> str:
    from imago_broker.config.units import kind_of

    known = name if name in SETTABLE else topics.RETENTION_MS
    return f"write for example --set {known}={'7d' if kind_of(known) else '…'}"
