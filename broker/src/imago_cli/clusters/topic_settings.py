"""What `--set name=value` of a topic may say; errors name what may have been meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from imago_broker.model.topics import topics
from imago_broker.model.topics.attributes import SETTABLE, attributes_problem
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

SET_HELP: Final = f"A setting, as name=value: {', '.join(SETTABLE)}. Repeatable."
SHORT_MS: Final = 60_000
"""A plain number below it is more likely days, hours or seconds than milliseconds."""
_ARE_OPTIONS: Final = {"queues": "--queues", "partitions": "--queues", "perm": "--perm"}


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
