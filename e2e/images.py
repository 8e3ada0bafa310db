"""The images that the suite's cluster runs: built where they changed, and brought to its nodes.

`python e2e/images.py [NAME …]`: all, or those with these names. Needs e2e/cluster, e2e/support and
tests/support on the path, and the packages of requirements/dev.txt.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rig import baking, build, cluster, layout
from rig.baking import Recipe
from rig.locks import alone
from rig.places import CACHE, RigError

from imago_cli.servers.zookeeper_server import class_path
from imago_e2e import versions
from imago_testing.clusters.former_version import FormerVersionMissingError
from imago_testing.java.modules import METAQ_CLIENT, ROCKETMQ4_CLIENT, ROCKETMQ5_CLIENT

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
OWN = ROOT / "e2e" / "dockerfiles"
PRODUCT = ("broker", "operator", "spark-apps")
"""Folders of the product with a Dockerfile."""
NEXT = {"broker-next": "broker", "operator-next": "operator"}
"""Images of the version after this one, which the suite makes of it for stories of upgrades."""
FORMER = "broker-former"
"""The image of the version before, made of the clone's history for the story that goes back."""
GIGA = 1e9
_JAVA = "localhost/imago-java:1"


def names() -> list[str]:
    """Return the names of all images, in the order in which they are built."""
    product = [part for part in PRODUCT if (ROOT / part / "Dockerfile").exists()]
    try:
        versions.former_is_there()
        former = [FORMER]
    except FormerVersionMissingError as error:
        print(f"{FORMER} is left out: {error}", flush=True)
        former = []
    return ["zookeeper", *product, *NEXT, *former, "clients", "minio", "spark-operator"]


def _places(name: str) -> tuple[str, str]:
    """Return an image's tag where it is built, and the name that pods give it."""
    if name == FORMER:
        return f"localhost/imago/broker:{versions.FORMER}", (
            f"docker.io/imago/broker:{versions.FORMER}"
        )
    if name in PRODUCT or name in NEXT:
        version = versions.following() if name in NEXT else versions.current()
        image = f"imago/{NEXT.get(name, name)}:{version}"
        return f"localhost/{image}", f"docker.io/{image}"
    pods = "library/zookeeper:3.9" if name == "zookeeper" else f"imago/e2e-{name}:1"
    return f"localhost/imago-e2e-{name}:1", f"docker.io/{pods}"


def provide(wanted: list[str] | None = None) -> None:
    """Build what changed and bring it to the nodes that run."""
    began = time.monotonic()
    with alone("images"):
        for name in wanted or names():
            tag, pods = _places(name)
            layout.put(tag, _make(name), pods)
        cluster.bring()
        _forget()
    print(f"images are there after {time.monotonic() - began:.1f} s", flush=True)


def _forget() -> None:
    """Remove what only former states of the checkout needed, and say how much that was."""
    before = _used()
    tags, pods = zip(*(_places(name) for name in names()), strict=True)
    baking.forget_all_but([*tags, _JAVA])
    layout.forget_all_but(pods)
    cluster.forget_replaced()
    build.forget_old()
    after = _used()
    print(f"{CACHE}: {after / GIGA:.1f} GB, {(before - after) / GIGA:.1f} GB freed", flush=True)


def _used() -> int:
    """Return how many bytes of the disk the suite takes."""
    command = ["du", "--summarize", "--one-file-system", "--block-size=1", str(CACHE)]
    # Nodes that run make and remove files all the time.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0])


def _make(name: str) -> str:
    if name in _MAKERS:
        return _MAKERS[name]()
    if name == FORMER:
        folder = CACHE / "contexts" / name
        versions.write_former(folder)
        return _of_product(name, folder / "broker" / "Dockerfile", folder)
    return _of_next(name) if name in NEXT else _of_product(name, ROOT / name / "Dockerfile")


def _of_next(name: str) -> str:
    dockerfile = ROOT / NEXT[name] / "Dockerfile"
    folder = CACHE / "contexts" / name
    versions.write_next(NEXT[name], (".dockerignore", *_copied(dockerfile)), folder)
    return _of_product(name, dockerfile, folder)


def _of_product(name: str, dockerfile: Path, context: Path = ROOT) -> str:
    recipe = Recipe(
        tag=_places(name)[0],
        dockerfile=dockerfile,
        context=context,
        inputs=_copied(dockerfile),
        base=baking.base(),
    )
    return baking.bake(recipe)


def _copied(dockerfile: Path) -> tuple[str, ...]:
    """Return patterns of what a Dockerfile copies from its context."""
    found: list[str] = []
    for line in dockerfile.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from="):
            found += (f"{word}**/*" if word.endswith("/") else word for word in words[1:-1])
    return tuple(found)


def _java() -> str:
    recipe = Recipe(
        tag=_JAVA,
        dockerfile=OWN / "java" / "Dockerfile",
        context=OWN / "java",
        inputs=(),
        base=baking.base(),
        registries=False,
    )
    baking.bake(recipe)
    return _JAVA


def _zookeeper() -> str:
    folder = _context("zookeeper")
    for jar in class_path():
        _copy(jar, folder / "jars" / jar.name)
    return _bake_own("zookeeper", folder)


def _clients() -> str:
    folder = _context("clients")
    for module in (METAQ_CLIENT, ROCKETMQ4_CLIENT, ROCKETMQ5_CLIENT):
        module.class_path()
        for part in ("lib", "classes"):
            made = module.folder / "target" / part
            for path in (each for each in made.rglob("*") if each.is_file()):
                _copy(path, folder / "java" / module.name / part / path.relative_to(made))
    return _bake_own("clients", folder)


def _minio() -> str:
    built, folder = build.minio(), _context("minio")
    _copy(built / build.MINIO, folder / f"built-{built.name}" / build.MINIO)
    return _bake_own("minio", folder, base=baking.base())


def _spark_operator() -> str:
    built, folder = build.spark_operator(), _context("spark-operator")
    _copy(built / build.SPARK_OPERATOR, folder / f"built-{built.name}" / build.SPARK_OPERATOR)
    _make("spark-apps")
    return _bake_own("spark-operator", folder, base=_places("spark-apps")[0])


def _bake_own(name: str, folder: Path, base: str = "") -> str:
    return baking.bake(
        Recipe(
            tag=_places(name)[0],
            dockerfile=folder / "Dockerfile",
            context=folder,
            inputs=("**/*",),
            base=base or _java(),
        )
    )


def _context(name: str) -> Path:
    """Return a folder to build in, outside of the checkout, with what OWN has of it."""
    folder = CACHE / "contexts" / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(OWN / name, folder)
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


_MAKERS: dict[str, Callable[[], str]] = {
    "zookeeper": _zookeeper,
    "clients": _clients,
    "minio": _minio,
    "spark-operator": _spark_operator,
}


if __name__ == "__main__":
    try:
        provide(sys.argv[1:] or None)
    except RigError as error:
        print(f"images: {error}", file=sys.stderr)
        sys.exit(2)
