"""What a broker reads in the operator's pod, with the pod's folders below another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.config.loading import from_tree, parse_tree
from imago_operator.manifests.brokers import pod_template
from imago_operator.manifests.config import toml
from imago_testing.clusters.brokers import loopback_tree
from imago_testing.operated.resources import told_of
from imago_testing.peers.admin import TOKEN

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.config import BrokerConfig
    from imago_operator.model.desired import Desired

TOKENS: Final = "/etc/imago/token"
Secrets = dict[str, dict[str, str]]


def in_pod(desired: Desired, secrets: Secrets, folder: Path, **changes: str) -> BrokerConfig:
    """Return what a broker reads in a pod of the cluster, whose folders are below this one."""
    pod = pod_template(desired, 0)
    [container] = pod["spec"]["containers"]
    volumes = {one["name"]: one.get("secret", {}) for one in pod["spec"]["volumes"]}
    told = told_of(pod)
    for mount in container["volumeMounts"]:
        secret = volumes.get(mount["name"], {})
        files = secrets.get(secret.get("secretName", ""), {})
        shown = [item["key"] for item in secret.get("items", ())] or list(files)
        for file, text in ((name, files[name]) for name in shown if name in files):
            place = folder / mount["mountPath"].lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(text)
    for one in container["env"]:
        if reference := one.get("valueFrom", {}).get("secretKeyRef"):
            told[one["name"]] = secrets[reference["name"]][reference["key"]]
    told = {name: _below(folder, said) for name, said in told.items()}
    (folder / TOKENS.lstrip("/")).mkdir(parents=True)
    (folder / TOKENS.lstrip("/") / "token").write_text(TOKEN)
    tree = parse_tree(toml(desired.settings), told)
    for section, here in loopback_tree(folder / "data").items():
        tree[section] = tree.get(section, {}) | here
    tree["admin"]["token_file"] = _below(folder, tree["admin"]["token_file"])
    tree["zookeeper"] |= changes
    return from_tree(tree)


def _below(folder: Path, said: str) -> str:
    """Return a path of the pod as the test has it."""
    return f"{folder}{said}" if said.startswith("/etc/imago/") else said
