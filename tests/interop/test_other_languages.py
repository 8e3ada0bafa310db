"""RocketMQ's clients in other languages than Java, each fetched from its own registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.interop.targets import imago_up
from imago_testing.java.toolchain import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

pytestmark = [pytest.mark.others]

OTHERS = Path(__file__).parent / "others"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    with imago_up(tmp_path_factory.mktemp("others"), shards=2) as ready:
        yield ready


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a program to its end; return what it printed."""
    if shutil.which(command[0]) is None:
        raise ToolMissingError(f"{command[0]} is not on the PATH: install Go, and Node with npm")
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def whole(printed: str, sent: int) -> None:
    """The program has sent so many messages, and each of its readers got each of them once."""
    assert json.loads(printed.splitlines()[-1]) == {"sent": sent, "faults": []}


@pytest.mark.shows(
    "send",
    "batch",
    "compressed",
    "group",
    "ordered",
    "broadcast",
    "pull",
    "retry",
    "delay",
    "transactions",
    "admin",
    clients=("go",),
)
def test_go(cluster: Mapping[str, Any], tmp_path: Path) -> None:
    run("go", "build", "-o", tmp_path / "main", ".", cwd=OTHERS / "go")
    broker = cluster["brokers"][0]["rocketmq"]
    whole(run(tmp_path / "main", cluster["namesrv"], broker, "others-go", cwd=tmp_path), 162)


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Mapping[str, Any]]:
    (tmp_path / "up").mkdir()
    options = ["--set", "acl.enabled=true"]
    with imago_up(tmp_path / "up", shards=1, options=options) as ready:
        yield ready


def put_user(ready: Mapping[str, Any], name: str, password: str, rules: Sequence[Any]) -> None:
    token = (Path(ready["data"]) / "admin-token").read_text().strip()
    request = urllib.request.Request(
        f"{ready['brokers'][0]['admin']}/admin/v1/users/{name}",
        data=json.dumps({"password": password, "rules": rules}).encode(),
        method="PUT",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=50) as answer:
        assert answer.status == 200


@pytest.mark.shows("users", clients=("go",))
def test_go_with_credentials(closed: Mapping[str, Any], tmp_path: Path) -> None:
    """Whose credentials are right and who may, sends and reads; nobody else sends anything."""
    run("go", "build", "-o", tmp_path / "credentials", "./credentials", cwd=OTHERS / "go")
    both = ["publish", "subscribe", "create"]
    rules = [
        {"resource": {"type": "Topic", "name": "orders"}, "operations": both},
        {"resource": {"type": "Group", "name": "readers"}, "operations": ["subscribe"]},
    ]
    for name, given in (("ann", rules), ("bob", rules[1:])):
        (tmp_path / f"{name}.password").write_text(f"password-of-{name}\n")
        put_user(closed, name, f"password-of-{name}", given)
    (tmp_path / "wrong.password").write_text("password-of-eve")

    def told(*credentials: str | Path) -> Any:
        words = (closed["namesrv"], "orders", "readers", "20", *credentials)
        return json.loads(run(tmp_path / "credentials", *words, cwd=tmp_path).splitlines()[-1])

    allowed = told("ann", tmp_path / "ann.password")
    assert allowed == {"sent": 20, "read": 20, "refused": ""}
    for credentials, why in (
        ((), "No accessKey is configured"),
        (("ann", tmp_path / "wrong.password"), "Check signature failed"),
        (("eve", tmp_path / "wrong.password"), "No acl config for eve"),
        (("bob", tmp_path / "bob.password"), "No default permission for orders"),
    ):
        denied = told(*credentials)
        assert denied["sent"] == 0
        assert why in denied["refused"]
    assert told("ann", tmp_path / "ann.password")["sent"] == 20


@pytest.mark.shows("send", "compressed", "group", "retry", "delay", clients=("cpp",))
def test_cpp(cluster: Mapping[str, Any], tmp_path: Path) -> None:
    """The binding's wheel holds the client as a library for Linux on x86-64."""
    wanted = OTHERS / "cpp" / "requirements.txt"
    uv = Path(sys.executable).parent / "uv"
    target = tmp_path / "client"
    run(
        uv, "pip", "install", "-q", "--require-hashes", "-r", wanted, "--target", target, cwd=OTHERS
    )
    main = OTHERS / "cpp" / "main.py"
    here = {"PYTHONPATH": str(target), "HOME": str(tmp_path)}  # it logs to its user's home
    whole(run(sys.executable, main, cluster["namesrv"], "others-cpp", cwd=tmp_path, **here), 72)


@pytest.mark.shows("send", "compressed", "group", "delay", clients=("node",))
def test_node(cluster: Mapping[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree(OTHERS / "node", tmp_path / "node")
    run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
    imago = Path(sys.executable).parent / "imago"
    run(imago, "topic", "create", "others-node", "--bootstrap", cluster["namesrv"], cwd=tmp_path)
    whole(run("node", "main.js", cluster["namesrv"], "others-node", cwd=folder), 52)
