"""RocketMQ's clients in other languages than Java, each fetched from its own registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.interop.targets import imago_up
from imago_testing.java.toolchain import ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = [pytest.mark.others, pytest.mark.timeout(900)]

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
