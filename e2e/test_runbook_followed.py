"""Whoever is called at night types what the runbook says, while clients of both protocols work."""

from __future__ import annotations

import base64
import json
import re
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from imago_e2e import clusters
from imago_e2e.clients import load
from imago_e2e.kube import KubeError, run, until
from imago_e2e.ordering import imago, said

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

RUNBOOK: Final = Path(__file__).resolve().parents[1] / "docs" / "runbook.md"
LOOKS: Final = {
    "status": "InSync",
    "explain": "case 25 Settled",
    "puts": "accepted",
    "disks": "normal",
    "logs": "topic_created",
    "clients": "JAVA",
    "addresses": "9876",
    "pipelines": "",  # it has none, which is said on the other output
    "groups": "lag",
    "topics": "sealed",
}
"""What changes nothing, and a word of what it says of a cluster that is well."""
ORDERS: Final = {"report", "plan", "pause", "resume", "handover", "approve", "fence", "unfence"}
ELSEWHERE: Final = {"user": "test_user_from_birth_to_end.py"}
"""What another story types."""
INSIDE: Final = {
    "imago cluster status": "master",
    "imago shard show 0": "epoch",
    "imago metaq transactions list": "connections",
}
"""Commands in a pod of the cluster."""


def test_no_command_of_the_runbook_is_left_out() -> None:
    typed = set(re.findall(r"kubectl imago ([a-z]+)", RUNBOOK.read_text()))
    assert typed == {*LOOKS, *ORDERS, *ELSEWHERE}


def test_what_the_runbook_says_can_be_typed(
    whole: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
    tmp_path: Path,
) -> None:
    with load(whole, drivers, topic) as running:
        for verb, word in LOOKS.items():
            assert word in imago(whole, verb), verb
        for line, word in INSIDE.items():
            found = whole.kube.execute(whole.namespace, whole.master(), *line.split())
            assert word in found, line
        _report(whole, tmp_path)
        _plan(whole, tmp_path)
        running.go_on()
        imago(whole, "pause")
        until(
            lambda: "Paused" in said(whole) or "paused" in imago(whole, "explain"),
            "it pauses",
            seconds_max=60,
        )
        imago(whole, "resume")
        until(lambda: "case 25 Settled" in imago(whole, "explain"), "it goes on", seconds_max=60)
        with pytest.raises(KubeError, match="nothing of demo waits for approval"):
            imago(whole, "approve")
        before, after = whole.master(), whole.slaves()[0]
        imago(whole, "handover", "0", "--to", after)
        until(lambda: whole.master() == after, f"{after} leads", seconds_max=60)
        running.go_on()
        imago(whole, "fence", before)
        try:
            until(lambda: _fenced(whole), f"{before} is fenced", seconds_max=120)
            assert f"{before}: fenced" in imago(whole, "explain")
            running.go_on()
        finally:
            imago(whole, "unfence")
        whole.settled()
        account.append(running.finish())


def _fenced(brokers: Brokers) -> bool:
    return said(brokers).get("Fenced", {}).get("reason") == "MembersFenced"


def _report(brokers: Brokers, folder: Path) -> None:
    """All of it in one file, without secrets."""
    path = folder / "report.tar.gz"
    imago(brokers, "report", "-f", str(path))
    with tarfile.open(path) as files:
        names = files.getnames()
        texts = [file.read().decode() for name in names if (file := files.extractfile(name))]
    assert any("broker" in name for name in names)
    secrets = brokers.kube.get("secrets", "-n", brokers.namespace)["items"]
    held = {value for one in secrets for value in (one.get("data") or {}).values()}
    assert not [value for value in held if any(_shows(text, value) for text in texts)]


def _shows(text: str, value: str) -> bool:
    """Whether a text has what a Secret holds, as it stands there or as it is meant."""
    plain = base64.b64decode(value).decode(errors="replace").strip()
    return (bool(value) and value in text) or (len(plain) >= 12 and plain in text)


def _plan(brokers: Brokers, folder: Path) -> None:
    """What a change would do is said, and nothing is done."""
    before = brokers.uids()
    wanted = clusters.manifest(brokers.namespace)
    found = brokers.kube.get("imc", brokers.name, "-n", brokers.namespace)
    wanted["metadata"]["name"], wanted["spec"] = brokers.name, found["spec"]
    wanted["spec"]["brokers"].setdefault("config", {})["broker.drain_seconds"] = 17
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(json.loads(json.dumps(wanted))))
    command = [
        sys.executable,
        "-m",
        "imago_cli.kubectl",
        "plan",
        "-f",
        str(file),
        "-n",
        brokers.namespace,
    ]
    assert "restart" in run(command, seconds_max=60).lower()
    assert brokers.uids() == before
