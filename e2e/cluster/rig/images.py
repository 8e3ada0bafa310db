"""Images on the nodes: imported once into a store, from which new nodes get hard links."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rig import archives, layout, node
from rig.places import STATE, TARS, RigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_STORE = STATE / "store"
_OWN = ("pause", "coredns")
"""Images that a cluster cannot do without: each is one program."""
_CTR = ("ctr", "-n", "k8s.io")
_STARTS_SECONDS_MAX = 30.0
_BOLT = "io.containerd.metadata.v1.bolt"
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs"
_CONTENT = "io.containerd.content.v1.content"
_COLLECTED = "does not exist: not found"


def write_own(bin_dir: Path) -> None:
    """Write the archives of the images that a cluster cannot do without."""
    for name in _OWN:
        if not _tar(name).exists():
            layers = [archives.layer({f"/{name}": bin_dir / name})]
            archives.write(_tar(name), _named(name), layers, {"Entrypoint": [f"/{name}"]})


def _tar(name: str) -> Path:
    return TARS / f"00-{name}.tar"


def _named(name: str) -> str:
    return f"rig.local/{name}:1"


def give_to_new(numbers: Iterable[int]) -> None:
    """Give nodes that never ran every image that there is, one copy of the layers for all."""
    new = [number for number in numbers if not node.containerd_root(number).exists()]
    if not new:
        return
    shutil.rmtree(_STORE, ignore_errors=True)
    _STORE.mkdir(parents=True)
    _fill_store()
    for number in new:
        _clone_store(node.containerd_root(number))
    # What was taken from it lives on as links; what is brought later does not pass through it.
    shutil.rmtree(_STORE)


def _fill_store() -> None:
    with tempfile.TemporaryDirectory() as run:
        config = Path(run, "containerd.toml")
        socket = Path(run, "containerd.sock")
        config.write_text(
            f'version = 2\nroot = "{_STORE}"\nstate = "{run}/state"\noom_score = 0\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{socket}"\n'
        )
        with (STATE / "store.log").open("ab") as log:
            process = subprocess.Popen(
                ["containerd", "--config", str(config)], stdout=log, stderr=log
            )
        try:
            _wait_for(socket, process)
            ctr = [*_CTR[:1], "--address", str(socket), *_CTR[1:]]
            for tar in sorted(TARS.glob("*.tar")):
                print(f"importing {tar.name}", flush=True)
                _run(*ctr, "images", "import", str(tar))
            print("importing what was built", flush=True)
            _send(ctr, _STORE)
        finally:
            process.terminate()
            process.wait()


def bring(pid: int, number: int) -> list[str]:
    """Give a node that runs the images that it lacks; return their names."""
    ctr = _ctr_of(pid)
    lacks = [name for name in _OWN if _named(name) not in _present(ctr)]
    for name in lacks:
        load(pid, _tar(name))
    return [*lacks, *_send(ctr, node.containerd_root(number))]


def forget_replaced(pid: int) -> None:
    """Remove what newer images have replaced; containers that still run on it keep their layers."""
    ctr = _ctr_of(pid)
    if unused := _replaced(_present(ctr)):
        _run(*ctr, "images", "rm", "--sync", *unused)


def _ctr_of(pid: int) -> list[str]:
    inside = ["nsenter", f"--target={pid}", "--mount"]
    return [*inside, *_CTR[:1], "--address", node.SOCKET, *_CTR[1:]]


def _send(ctr: list[str], root: Path) -> list[str]:
    names = layout.missing(_present(ctr))
    if names:
        command = [*ctr, "images", "import", "-"]
        try:
            layout.send(names, root / _CONTENT, command)
        except RigError as error:
            # While it unpacks a layer, containerd may collect the one below, of a former image.
            if _COLLECTED not in str(error):
                raise
            layout.send(names, root / _CONTENT, command)
    return names


def _present(ctr: list[str]) -> dict[str, str]:
    """Return the names of a containerd's images with their digests."""
    rows = (line.split() for line in _run(*ctr, "images", "ls").splitlines()[1:])
    return {row[0]: row[2] for row in rows if len(row) > 2}


def _replaced(present: dict[str, str]) -> list[str]:
    """Return names of images that are only kept since kubelet's interface gave them one more."""
    named = {digest for name, digest in present.items() if not name.startswith("sha256:")}
    return [name for name, digest in present.items() if digest not in named]


def _clone_store(root: Path) -> None:
    """Give a new node everything that the store has."""
    made = root.with_name(f"{root.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for name in (_CONTENT, _SNAPSHOTS, _BOLT):
        # Layers are only read, so links do; the databases are written and are copied below.
        _run("cp", "-al", str(_STORE / name), str(made / name))
    for database in (f"{_BOLT}/meta.db", f"{_SNAPSHOTS}/metadata.db"):
        (made / database).unlink()
        shutil.copyfile(_STORE / database, made / database)
    made.rename(root)


def load(pid: int, tar: Path) -> None:
    """Import an archive into a node that runs; `pid` is its process 1."""
    _run(*_ctr_of(pid), "images", "import", str(tar))


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _STARTS_SECONDS_MAX
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RigError(f"containerd does not start: see {STATE / 'store.log'}")
        time.sleep(0.05)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
