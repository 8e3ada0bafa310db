"""Parts of pages that are made: between two marks, which name what they are made from.

python -m imago_tools.made          write every part into its page
python -m imago_tools.made --check  exit code 1, and the pages, where one differs
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.config.metaq import metaq_keys
from imago_cli import exits
from imago_tools import client_api, compatibility, figures, log_events, tasks

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT: Final = Path(__file__).parents[2]
END: Final = "<!-- end -->\n"


class Part(NamedTuple):
    """One part of a page."""

    page: str
    source: str
    make: Callable[[], str]

    @property
    def begin(self) -> str:
        return f"<!-- made by `make docs` from {self.source}: begin -->\n"


PARTS: Final = (
    Part("README.md", "tests/interop", compatibility.matrix),
    Part("README.md", "bench/results/peers.json", figures.peers),
    Part("README.md", "bench/results/failover.json", figures.failover),
    Part("docs/clients.md", "broker/src/imago_cli/exits.py", exits.table),
    Part("docs/metaq.md", "broker/src/imago_broker/config/metaq/metaq_keys.py", metaq_keys.table),
    Part("docs/performance.md", "bench/results/broker.json", figures.broker),
    Part("docs/performance.md", "bench/results/peers.json", figures.peers_in_full),
    Part("docs/performance.md", "bench/results/java_push.json", figures.java_push),
    Part("docs/performance.md", "bench/results/gate.json", figures.gate),
    Part("docs/performance.md", "bench/results/replicated.json", figures.replicated),
    Part("docs/performance.md", "bench/results/catch_up.json", figures.catch_up),
    Part("docs/performance.md", "bench/results/failover.json", figures.failover),
    Part("docs/performance.md", "bench/results/metaq.json", figures.metaq),
    Part("docs/performance.md", "bench/results/tls.json", figures.tls),
    Part("docs/performance.md", "bench/results/scale.json", figures.scale),
    Part("docs/performance.md", "bench/results/spark.json", figures.spark),
    Part("docs/reference/client.md", client_api.SOURCE, client_api.page),
    Part("docs/reference/events.md", log_events.SOURCE, log_events.table),
    Part("docs/tasks.md", tasks.SOURCE, tasks.table),
    Part("docs/security.md", "bench/results/fuzz.json", figures.fuzzed),
)


def renewed(text: str, part: Part) -> str:
    """Return a page with one part made anew; ValueError where its marks are missing."""
    head, rest = text.split(part.begin)
    _, tail = rest.split(END, 1)
    return f"{head}{part.begin}\n{part.make()}\n{END}{tail}"


def pages() -> dict[str, str]:
    """Return every page that has such parts, as it has to be."""
    made: dict[str, str] = {}
    for part in PARTS:
        text = made.get(part.page) or (ROOT / part.page).read_text(encoding="utf-8")
        made[part.page] = renewed(text, part)
    return made


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them."""
    old = {}
    for name, text in pages().items():
        path = ROOT / name
        if path.read_text(encoding="utf-8") != text:
            old[name] = text
    if arguments == ["--check"]:
        for name in old:
            print(f"{name} is not what it is made from: run `make docs`")
        return 1 if old else 0
    for name, text in old.items():
        (ROOT / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
