"""Tables in pages: `python -m imago_operator.reasons.page docs` makes them anew."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_operator.reasons.cases import CASES
from imago_operator.reasons.table import EVENTS, REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.reasons.model import Reason

BEGIN: Final = "<!-- made by `make docs` from imago_operator/reasons: begin -->\n"
END: Final = "<!-- end -->\n"


def tables() -> str:
    """Return the part of the runbook that is made."""
    return "".join(_conditions()) + "".join(_events())


def cases() -> str:
    """Return the part of the operator's page that is made."""
    rows = (
        f"| {number}{' +' if case.additive else ''} | {case.title} | {case.holds} | {case.does} "
        f"| {case.late} |\n"
        for number, case in enumerate(CASES, start=1)
    )
    return "\n| # | case | holds when | does | late after |\n|---|---|---|---|---|\n" + "".join(
        rows
    )


PAGES: Final = {"runbook.md": tables, "operator.md": cases}


def _conditions() -> Iterator[str]:
    for kind, entries in groupby(REASONS, key=lambda one: one.kind):
        yield f"\n### {kind}\n\n| condition | reason | means | what to do |\n|---|---|---|---|\n"
        yield from (_row(one) for one in sorted(entries, key=_place))


def _place(one: Reason) -> tuple[bool, str]:
    """Ready first, as `kubectl describe` shows it; reasons of a type stay as they are."""
    return one.type != "Ready", one.type


def _row(one: Reason) -> str:
    return f"| {one.type} | `{one.reason}` | {one.means} | {one.cure} |\n"


def _events() -> Iterator[str]:
    yield "\n### Events\n\nA condition that changes is an event with the condition's reason."
    yield " These come on top:\n\n| kind | event | what happened |\n|---|---|---|\n"
    yield from (f"| {one.kind} | `{one.reason}` | {one.means} |\n" for one in EVENTS)


def renewed(name: str, text: str) -> str:
    """Return a page with its tables made anew; ValueError where the marks are missing."""
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}{PAGES[name]()}\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Write the tables into their pages."""
    folder = Path(arguments[0] if arguments else "docs")
    for name in PAGES:
        page = folder / name
        page.write_text(renewed(name, page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
