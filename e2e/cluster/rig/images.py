"""Images on the nodes: imported once into a store, from which every node gets hard links."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from rig import archives, layout, node
from rig.places import STATE, TARS, RigError

_STORE = STATE / "store"
_CTR = ("ctr", "-n", "k8s.io")
_STARTS_SECONDS_MAX = 30.0
_BOLT = "io.containerd.metadata.v1.bolt"
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
_CONTENT = "io.containerd.content.v1.content"


def write_own(bin_dir: Path) -> None:
    """Write the archives of the two images that a cluster cannot do without."""
    pause, dns = TARS / "00-pause.tar", TARS / "00-coredns.tar"
    if not pause.exists():
        layers = [archives.layer({"/pause": bin_dir / "pause"})]
        archives.write(pause, "rig.local/pause:1", layers, {"Entrypoint": ["/pause"]})
    if not dns.exists():
        layers = [archives.layer({"/coredns": bin_dir / "coredns"})]
        archives.write(dns, "rig.local/coredns:1", layers, {"Entrypoint": ["/coredns"]})


def fill_store() -> None:
    """Import every archive that the store does not have yet."""
    done = _STORE / "imported"
    known = set(done.read_text().split()) if done.exists() else set()
    tars = [tar for tar in sorted(TARS.glob("*.tar")) if _name(tar) not in known]
    if not tars and layout.stamp() in known:
        return
    _STORE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as run:
        config = Path(run, "containerd.toml")
        socket = Path(run, "containerd.sock")
        config.write_text(
            f'version = 2\nroot = "{_STORE}"\nstate = "{run}/state"\noom_score = 0\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{socket}"\n'
        )
        with (_STORE / "containerd.log").open("ab") as log:
            process = subprocess.Popen(
                ["containerd", "--config", str(config)], stdout=log, stderr=log
            )
        try:
            _wait_for(socket, process)
            for tar in tars:
                print(f"importing {tar.name}", flush=True)
                _run(*_CTR[:1], "--address", str(socket), *_CTR[1:], "images", "import", str(tar))
                known.add(_name(tar))
            print("importing what was built", flush=True)
            _send([*_CTR[:1], "--address", str(socket), *_CTR[1:]], _STORE)
            known.add(layout.stamp())
        finally:
            process.terminate()
            process.wait()
    done.write_text("\n".join(sorted(known)))


def bring(pid: int, number: int) -> list[str]:
    """Give a node that runs the images that it lacks; return their names."""
    inside = ["nsenter", f"--target={pid}", "--mount"]
    ctr = [*inside, *_CTR[:1], "--address", node.SOCKET, *_CTR[1:]]
    return _send(ctr, node.containerd_root(number))


def _send(ctr: list[str], root: Path) -> list[str]:
    listed = subprocess.run([*ctr, "images", "ls"], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listed.stdout.splitlines()[1:])
    names = layout.missing({row[0]: row[2] for row in rows if len(row) > 2})
    if names:
        layout.send(names, root / _CONTENT, [*ctr, "images", "import", "-"])
    return names


def clone_store(number: int) -> None:
    """Give a new node everything that the store has."""
    root = node.containerd_root(number)
    if root.exists():
        return
    root.mkdir(parents=True)
    for name in (_CONTENT, _SNAPSHOTS, _BOLT):
        if (_STORE / name).exists():
            # Layers are only read, so links do; the databases are written and are copied below.
            _run("cp", "-al", str(_STORE / name), str(root / name))
    for database in (f"{_BOLT}/meta.db", f"{_SNAPSHOTS}/metadata.db"):
        if (_STORE / database).exists():
            (root / database).unlink()
            shutil.copyfile(_STORE / database, root / database)


def load(pid: int, tar: Path) -> None:
    """Import an archive into a node that runs; `pid` is its process 1."""
    inside = ("nsenter", f"--target={pid}", "--mount")
    _run(*inside, *_CTR[:1], "--address", node.SOCKET, *_CTR[1:], "images", "import", str(tar))


def _name(tar: Path) -> str:
    stat = tar.stat()
    return f"{tar.name}:{stat.st_size}:{stat.st_mtime_ns}"


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _STARTS_SECONDS_MAX
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RigError(f"containerd does not start: see {_STORE / 'containerd.log'}")
        time.sleep(0.05)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"{' '.join(command)}: {done.stderr.strip()}")
