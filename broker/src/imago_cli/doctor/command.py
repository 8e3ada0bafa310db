"""`imago doctor`: finds common mistakes on this machine, each with its cure."""

from __future__ import annotations

import socket
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from imago_broker.app.coordination import tree_access
from imago_cli.doctor import checks
from imago_cli.doctor.checks import CheckFinding, CheckLevel
from imago_cli.doctor.damage import check_damage
from imago_cli.doctor.security import check_security
from imago_cli.doctor.shards import check_shards
from imago_cli.exits import Exit
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import print_json, print_table
from imago_cli.servers.server_config import listener_ports, read_config
from imago_cli.up import state as up_state
from imago_cli.up.plan import HOST, ClusterPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.config import BrokerConfig


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("doctor", doctor)


def doctor(
    config: Annotated[
        Path | None, Option(help="Configuration of a broker; unless given, the defaults.")
    ] = None,
    data: Annotated[
        Path | None,
        Option(help="Folder of an `imago up`; unless given, the one that runs here."),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Find common mistakes on this machine, each with its cure.

    Exit code 0 if nothing keeps a broker from working, 1 otherwise.
    """
    findings = list(diagnose(config, data))
    failed = any(finding.level is CheckLevel.ERROR for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [_as_json(finding) for finding in findings]})
    else:
        rows = [[f.level, f.check, _told(f)] for f in findings]
        print_table("imago doctor", ["", "what", "finding"], rows)
    sys.exit(Exit.FAILED if failed else Exit.DONE)


def diagnose(config_path: Path | None, data: Path | None) -> Iterator[CheckFinding]:
    """Run all checks for a broker with this configuration, or for the brokers in a folder."""
    plan = None
    if data is None and config_path is None:
        running = up_state.running_folders()
        data, findings = _found(running)
        yield from findings
        if len(running) > 1:  # what follows would be about none of them
            yield from chain(checks.check_python(), checks.check_compiled(), checks.check_java())
            return
    if data is not None:
        data = data.absolute()
        plan = up_state.remembered(data)
        shard_config = data / "config" / "shard-0.toml"
        config_path = config_path or (shard_config if shard_config.exists() else None)
    settings = read_config(config_path)
    folder = data or Path(settings.broker.data_dir)
    store = settings.store
    yield from chain(
        checks.check_python(),
        checks.check_compiled(),
        checks.check_java(),
        checks.check_ports(plan.ports() if plan else listener_ports(settings), _running(data)),
        *(
            checks.check_disk(
                each,
                clean_ratio=store.disk_clean_ratio,
                force_ratio=store.disk_force_ratio,
                full_ratio=store.disk_full_ratio,
            )
            for each in on_disks_of_their_own(folder, plan)
        ),
        checks.check_open_files(settings.limits.connections_max),
        checks.check_clock(folder, admin_addresses(plan)),
        _zookeeper(settings, plan),
        checks.check_listeners(settings),
        check_security(settings, time.time()),
        check_shards(admin_addresses(plan)),
        check_damage(folder),
    )


def _found(folders: list[Path]) -> tuple[Path | None, list[CheckFinding]]:
    """Return the only cluster of `imago up` that runs here, and what is to be said of it."""
    if len(folders) == 1:
        text = f"checked the cluster that runs in {folders[0]}"
        return folders[0], [CheckFinding("imago up", CheckLevel.NOTE, text)]
    if not folders:
        return None, []
    text = f"several clusters run here, in {', '.join(map(str, folders))}; none was checked"
    return None, [
        CheckFinding(
            "imago up", CheckLevel.NOTE, text, f"name one: imago doctor --data {folders[0]}"
        )
    ]


def _zookeeper(settings: BrokerConfig, plan: ClusterPlan | None) -> Iterator[CheckFinding]:
    if plan and plan.own_zookeeper and not _accepts(HOST, plan.zookeeper_port):
        yield CheckFinding(
            "zookeeper", CheckLevel.NOTE, "not running: imago up starts one of its own"
        )
        return
    yield from checks.check_zookeeper(
        settings.zookeeper.connect,
        settings.zookeeper.session_timeout_ms,
        tree_access(settings),
    )


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _running(data: Path | None) -> dict[int, str]:
    """Process ids of a cluster here, with their names."""
    files = sorted((data / "run").glob("*.pid")) if data else []
    texts = [(path.stem, path.read_text().strip()) for path in files]
    return {int(text): name for name, text in texts if text.isdecimal()}


def admin_addresses(plan: ClusterPlan | None) -> list[tuple[str, int]]:
    """Admin interfaces of the brokers of this machine."""
    if plan is None:
        return []
    return [(HOST, plan.broker_ports(place).admin) for place in plan.places()]


def on_disks_of_their_own(folder: Path, plan: ClusterPlan | None) -> list[Path]:
    """Return the folder, and those of its brokers that stand on other disks than it does."""
    if plan is None or not folder.exists():
        return [folder]
    found = {_device(folder): folder}
    for place in plan.places():
        data = plan.broker_data(place)
        if data.exists():
            found.setdefault(_device(data), data)
    return list(found.values())


def _device(folder: Path) -> int:
    return folder.stat().st_dev


def _told(finding: CheckFinding) -> str:
    return f"{finding.message}\ncure: {finding.cure}" if finding.cure else finding.message


def _as_json(finding: CheckFinding) -> dict[str, str]:
    return {
        "check": finding.check,
        "level": finding.level,
        "message": finding.message,
        "cure": finding.cure,
    }
