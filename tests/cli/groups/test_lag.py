"""Why a group is behind, out of two looks at it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from imago_broker.admin import dashboard
from imago_cli.groups.lag import Rates, rates, why_behind
from imago_client import GroupDescription, GroupProgress, Member, MessageQueue

QUEUES = [MessageQueue("orders", "shard-0", number) for number in range(2)]
ME = Member("me@1", "10.0.0.1:5", "JAVA", 479)


def look(*places: tuple[int, int], members: int = 1, topic: str = "orders") -> GroupDescription:
    """The group's committed offset and the end, queue by queue."""
    progress = tuple(
        GroupProgress(queue, at, end, 0) for queue, (at, end) in zip(QUEUES, places, strict=True)
    )
    return GroupDescription("billing", (ME,) * members, {topic: "*"} if members else {}, progress)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (look((5, 5), (5, 5)), look((5, 5), (5, 5)), "scheduled --topic %RETRY%billing lists"),
        (look((0, 5), (5, 5)), look((0, 5), (5, 5), members=0), "nobody reads: no member"),
        (
            look((0, 5), (5, 5)),
            look((0, 5), (5, 5), topic="x"),
            "no member that is connected",
        ),
        (look((0, 5), (0, 5)), look((0, 9), (0, 9)), "1 member connected, but nothing was commit"),
        (look((0, 50), (0, 50)), look((4, 70), (6, 70)), "more comes (20/s) than it reads (5/s)"),
        (look((0, 50), (0, 50)), look((20, 50), (20, 50)), "it catches up in 3 s at 20/s"),
        (
            look((0, 10**6), (0, 10**6)),
            look((2, 10**6), (2, 10**6)),
            "catches up in 277.8 hours",
        ),
        (look((0, 90), (0, 2)), look((2, 90), (2, 2)), "at 1/s"),
        (look((0, 900), (0, 9)), look((2, 900), (2, 9)), ", most of it in orders/shard-0/0"),
    ],
)
def test_the_sentence_says_what_to_look_at(
    before: GroupDescription, after: GroupDescription, said: str
) -> None:
    assert said in why_behind(after, rates(before, after, 2.0))


def test_rates_are_of_the_time_between_the_looks() -> None:
    found = rates(look((0, 10), (0, 0)), look((6, 14), (0, 0)), 2.0)
    assert found == {QUEUES[0]: Rates(3.0, 2.0), QUEUES[1]: Rates(0.0, 0.0)}


def test_queues_that_no_member_reads_are_named() -> None:
    found = look((0, 9), (0, 5))
    speeds = rates(found, found, 2.0)
    assert "1 member connected, but none reads orders/shard-0/0 and 1 other queue" in why_behind(
        found, speeds, {}
    )
    said = why_behind(found, speeds, {QUEUES[0]: "me@1"})
    assert said.endswith("none reads orders/shard-0/1; of the others nothing was committed, either")
    for owners in (None, dict.fromkeys(QUEUES, "me@1")):
        assert "handlers hang or fail" in why_behind(found, speeds, owners)


def test_without_a_second_look_nobody_is_blamed() -> None:
    said = why_behind(look((0, 9), (0, 5)), {})
    assert said == "it is 14 messages behind; how fast it reads, a look says (--look 6)"


OWNERS = [None, {}, {QUEUES[0]: "me@1"}, dict.fromkeys(QUEUES, "me@1")]


def test_the_dashboard_says_the_same_of_queues_without_a_reader(tmp_path: Path) -> None:
    found = look((0, 9), (0, 5))
    speeds = rates(found, found, 2.0)
    cases = [
        [
            {
                "topic": one.queue.topic,
                "shard": one.queue.shard,
                "queue": one.queue.queue_id,
                "lag": one.lag,
                "read": 0,
                "came": 0,
                "reader": (owners or {}).get(one.queue),
            }
            for one in found.progress
        ]
        for owners in OWNERS
    ]
    told = [owners is not None for owners in OWNERS]
    static = Path(dashboard.__file__).parent / "static"
    for name in ("behind.js", "words.js"):
        shutil.copy(static / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "said.js").write_text(
        "import { whyBehind } from './behind.js';\n"
        f"const cases = {json.dumps(cases)}, told = {json.dumps(told)};\n"
        "const said = cases.map((one, n) => whyBehind(one, 1, new Set(['orders']), [], told[n]));\n"
        "console.log(JSON.stringify(said));\n"
    )
    done = subprocess.run(
        ["node", str(tmp_path / "said.js")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [f"{why_behind(found, speeds, owners)}." for owners in OWNERS]


def test_the_dashboard_takes_rates_over_twenty_seconds_and_forgets_what_is_old(
    tmp_path: Path,
) -> None:
    shutil.copy(Path(dashboard.__file__).parent / "static" / "rates.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    looks = [(0, 0), (5, 0), (10, 100), (15, 100), (20, 200), (25, 200), (26, 100), (90, 100)]
    (tmp_path / "said.js").write_text(
        "import { rates } from './rates.js';\n"
        f"const looks = {json.dumps(looks)};\n"
        "console.log(JSON.stringify(looks.map(([s, n]) => rates.of('a', n, 9000, s * 1000))));\n"
    )
    done = subprocess.run(
        ["node", str(tmp_path / "said.js")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [None, None, 10, 100 / 15, 10, 10, None, None]
