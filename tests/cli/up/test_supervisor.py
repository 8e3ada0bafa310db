"""The supervisor with children of a few lines."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from imago_cli.exits import CommandError, Exit
from imago_cli.up import supervisor
from imago_cli.up.command import StopRequests
from imago_cli.up.log_relay import LogRelay
from imago_cli.up.supervisor import (
    Backoff,
    ChildFailedError,
    ProcessSpec,
    SupervisedProcess,
    reason_in,
    while_all_live,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.processes

SERVES = """
import os, signal, sys, time
os.write(int(sys.argv[1]), b'{"answer": 42}\\n')
"""
WAITS = SERVES + "signal.pause()"


def spec(folder: Path, code: str, **options: Any) -> ProcessSpec:
    return ProcessSpec(
        name="child",
        command=[sys.executable, "-c", code, "{ready_fd}"],
        log_path=folder / "logs" / "child.log",
        pid_path=folder / "run" / "child.pid",
        environment=dict(os.environ),
        **options,
    )


async def wait_for(condition: Any) -> None:
    async with asyncio.timeout(60):
        for _ in range(10_000):
            if condition():
                return
            await asyncio.sleep(0.01)


async def test_start_returns_what_the_child_said(tmp_path: Path) -> None:
    child = SupervisedProcess(spec(tmp_path, WAITS), restart=True)
    await child.start()
    assert child.ready == {"answer": 42}
    assert (tmp_path / "run" / "child.pid").read_text() == f"{child.pid}\n"
    await child.stop()
    assert child.pid == 0
    assert not (tmp_path / "run" / "child.pid").exists()


@pytest.mark.parametrize(
    ("code", "reason", "exit_code"),
    [
        ("raise SystemExit(4)", "ended with code 4", Exit.IO),
        ("raise SystemExit(77)", "ended with code 77", Exit.FAILED),
        (
            "import sys; sys.stderr.write('noise\\nerror: the port is busy\\n  cure: x\\n'); "
            "raise SystemExit(2)",
            "the port is busy",
            Exit.USAGE,
        ),
        (
            "import sys; sys.stderr.write('2026 CRITICAL a.b folder x is locked by another\\n'); "
            "raise SystemExit(3)",
            "folder x is locked by another",
            Exit.USAGE,
        ),
    ],
)
async def test_a_child_that_ends_before_it_serves_is_told_with_its_own_words(
    tmp_path: Path, code: str, reason: str, exit_code: Exit
) -> None:
    child = SupervisedProcess(spec(tmp_path, code), restart=True)
    with pytest.raises(ChildFailedError) as failed:
        await child.start()
    assert failed.value.message == f"child: {reason}"
    assert failed.value.code is exit_code
    await child.stop()


async def test_damaged_data_is_told_with_what_helps(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('error: byte 7 is damaged\\n'); raise SystemExit(3)"
    child = SupervisedProcess(spec(tmp_path, code, damage_cure="move it away"), restart=True)
    with pytest.raises(ChildFailedError, match="byte 7 is damaged") as failed:
        await child.start()
    assert failed.value.code is Exit.DATA
    assert failed.value.cure == f"move it away; its log is {tmp_path / 'logs' / 'child.log'}"
    await child.stop()


async def test_a_child_that_dies_during_the_work_ends_it(tmp_path: Path) -> None:
    children = [SupervisedProcess(spec(tmp_path / name, WAITS), restart=True) for name in "ab"]
    for child in children:
        await child.start()
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    working = asyncio.create_task(while_all_live(children, work()))
    await begun.wait()
    os.kill(children[1].pid, signal.SIGKILL)
    with pytest.raises(ChildFailedError, match="child: ended with code -9"):
        await working
    assert (children[0].pid != 0, children[1].pid) == (True, 0)
    await asyncio.gather(*(child.stop() for child in children))


async def test_children_that_live_leave_the_work_alone(tmp_path: Path) -> None:
    child = SupervisedProcess(spec(tmp_path, WAITS), restart=True)
    await child.start()
    done: list[str] = []

    async def work() -> None:
        done.append("all of it")

    async def fails() -> None:
        raise CommandError("not ready")

    await while_all_live([child], work())
    assert (done, child.pid != 0) == (["all of it"], True)
    with pytest.raises(CommandError, match="not ready"):
        await while_all_live([child], fails())
    await child.stop()


def test_only_a_later_signal_is_a_second_request() -> None:
    requests = StopRequests()
    assert [requests.urgent(now) for now in (100.0, 100.0, 100.9, 101.0)] == [
        False, False, False, True,
    ]  # fmt: skip


async def test_a_child_that_never_serves_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "READY_SECONDS_MAX", 0.5)
    child = SupervisedProcess(spec(tmp_path, "import signal; signal.pause()"), restart=True)
    with pytest.raises(CommandError, match="does not serve within"):
        await child.start()
    assert child.pid == 0


async def test_a_restart_that_hangs_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = tmp_path / "lives"
    count = f"import pathlib; lives = pathlib.Path({str(lives)!r})\n"
    count += "lives.write_text(lives.read_text() + 'x' if lives.exists() else 'x')\n"
    hang = "import signal\nif lives.read_text() == 'xx': signal.pause()\n"
    child = SupervisedProcess(spec(tmp_path, count + hang + WAITS, stop_seconds=5), restart=True)
    await child.start()
    monkeypatch.setattr(supervisor, "READY_SECONDS_MAX", 2.0)
    keeper = asyncio.create_task(child.keep())
    os.kill(child.pid, signal.SIGKILL)
    await wait_for(lambda: lives.read_text() == "xxx")
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
    await child.stop()
    assert child.pid == 0


async def test_a_child_without_a_ready_line_is_probed(tmp_path: Path) -> None:
    flag = tmp_path / "serves"
    code = f"import pathlib, signal; pathlib.Path({str(flag)!r}).touch(); signal.pause()"
    child = SupervisedProcess(spec(tmp_path, code, probe=flag.exists), restart=True)
    await child.start()
    assert flag.exists()
    await child.stop()


async def test_a_dead_child_is_started_again(tmp_path: Path) -> None:
    child = SupervisedProcess(spec(tmp_path, WAITS), restart=True)
    await child.start()
    keeper = asyncio.create_task(child.keep())
    for _ in range(2):
        before = child.pid
        os.kill(before, signal.SIGKILL)
        await wait_for(lambda before=before: child.pid not in (0, before))
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
    await child.stop()
    assert child.pid == 0


def test_pauses_grow_while_lives_are_short_and_start_over_after_a_long_one() -> None:
    backoff = Backoff()
    pauses = [backoff.pause_after(0.1) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert [backoff.pause_after(seconds) for seconds in (60, 1, 1)] == [0.1, 0.2, 0.4]


async def test_a_child_that_is_not_to_be_restarted_stays_dead(tmp_path: Path) -> None:
    child = SupervisedProcess(spec(tmp_path, WAITS), restart=False)
    await child.start()
    keeper = asyncio.create_task(child.keep())
    os.kill(child.pid, signal.SIGKILL)
    await keeper
    assert child.pid == 0
    await child.stop()


async def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    then = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('stalled', flush=True)\n"
    code = SERVES + then + "while True: time.sleep(60)"
    child = SupervisedProcess(spec(tmp_path, code, stop_seconds=0.2), restart=True)
    await child.start()
    process = psutil.Process(child.pid)
    log = tmp_path / "logs" / "child.log"
    await wait_for(lambda: "stalled" in log.read_text())
    await child.stop()
    assert not process.is_running()


async def test_a_child_has_a_session_of_its_own(tmp_path: Path) -> None:
    child = SupervisedProcess(spec(tmp_path, WAITS), restart=True)
    await child.start()
    assert os.getsid(child.pid) == child.pid, "a Ctrl-C at the terminal is for the parent"
    await child.stop()


def test_the_reason_is_the_last_error_line() -> None:
    assert reason_in("") == ""
    assert reason_in("error: first\nerror: second\n  cure: nothing\n") == "second"
    assert reason_in("2026-01-01 00:00:00,000 CRITICAL a.b.c it broke\nmore") == "it broke"


def test_logs_are_copied_from_where_they_were(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    log.write_text("before\n")
    relay = LogRelay([log, tmp_path / "missing.log"])
    relay.start()
    with log.open("a") as file:
        file.write("after\nunfinished")
    relay.stop()
    assert capfd.readouterr().err == "a: after\na: unfinished"


def test_a_long_log_starts_anew_and_keeps_one_former(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "a.log"
    relay = LogRelay([log], bytes_max=100)
    relay.start()
    with log.open("ab", buffering=0) as file:
        file.write(b"x" * 200 + b"\n")
        relay.stop()
        file.write(b"next\n")
    assert log.read_bytes() == b"next\n"
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 200 + b"\n"
    assert "x" * 200 in capfd.readouterr().err
