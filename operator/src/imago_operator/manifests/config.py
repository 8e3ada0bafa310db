"""The brokers' configuration file, and the account that their pods run under."""

from __future__ import annotations

import base64
import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

from imago_operator.manifests.common import Manifest, child
from imago_operator.model import names
from imago_operator.model.desired import REGISTRY_USER, fingerprint
from imago_operator.model.secret_data import coded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_operator.broker_rules.keys import Scalar
    from imago_operator.model.desired import Desired

FILE = "broker.toml"
CONFIG = "config"
"""Volume with that file."""


def config_map(desired: Desired) -> Manifest:
    """Return the ConfigMap with the file that brokers read.

    Each content has one of its own that never changes, and pods name the one that they were made
    with: whatever restarts for another reason reads what it has read before.
    """
    return config_map_of(desired, desired.settings)


def config_map_of(desired: Desired, settings: Mapping[str, Scalar]) -> Manifest:
    """Return the one with other settings than those of today."""
    text = toml(settings)
    name = names.config(desired.name, fingerprint(text))
    content = {"immutable": True, "data": {FILE: text}}
    return child(desired, "v1", "ConfigMap", name, names.BROKER, content)


def listener_hosts(desired: Desired, learnt: Iterable[tuple[str, str, str]]) -> Manifest:
    """Return the ConfigMap with what brokers' load balancers are called: pod, listener, address."""
    lines: dict[str, str] = {}
    for pod, listener, address in sorted(learnt):
        lines[pod] = lines.get(pod, "") + f"{listener}={address}\n"
    name = names.listeners(desired.name)
    return child(desired, "v1", "ConfigMap", name, names.BROKER, {"data": lines})


def config_name(desired: Desired) -> str:
    """Return the name of the ConfigMap with the settings of today."""
    return names.config(desired.name, fingerprint(toml(desired.settings)))


def config_of(pod: Mapping[str, Any]) -> str:
    """Return the ConfigMap of a broker's pod, or of a template; empty: it has none."""
    volumes = pod.get("spec", {}).get("volumes") or ()
    found = (one.get("configMap") or {} for one in volumes if one.get("name") == CONFIG)
    return str(next(found, {}).get("name", ""))


def with_config(template: Mapping[str, Any], name: str) -> Manifest:
    """Return a template of pods that names another ConfigMap."""
    volumes = [
        {**one, "configMap": {**one["configMap"], "name": name}} if one["name"] == CONFIG else one
        for one in template["spec"]["volumes"]
    ]
    return {**template, "spec": {**template["spec"], "volumes": volumes}}


def service_account(desired: Desired) -> Manifest:
    """Return the account of the brokers' pods: it may do nothing, and has no token."""
    return child(
        desired,
        "v1",
        "ServiceAccount",
        names.service_account(desired.name),
        names.BROKER,
        {"automountServiceAccountToken": False},
    )


def toml(settings: Mapping[str, Scalar]) -> str:
    """Return settings by `section.key` as a TOML file, in one order for equal settings."""
    parts = []
    for section, keys in groupby(sorted(settings), key=lambda key: key.partition(".")[0]):
        parts.append(f"[{section}]\n")
        parts += [f"{key.partition('.')[2]} = {_value(settings[key])}\n" for key in keys]
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def _value(value: Scalar) -> str:
    """Scalars and lists of JSON are also those of TOML; only text beyond ASCII is escaped alike."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def token_secret(desired: Desired, name: str, token: str) -> Manifest:
    """Return the Secret with the token of the brokers' administration."""
    content = {"type": "Opaque", "data": {"token": base64.b64encode(token.encode()).decode()}}
    return child(desired, "v1", "Secret", name, names.BROKER, content)


def registry_user_secret(desired: Desired, name: str, password: str) -> Manifest:
    """Return the Secret with the brokers' user in a managed ZooKeeper.

    It belongs to nobody: it is the key to ZooKeeper's claims, and these outlive the cluster.
    """
    content = {"type": "Opaque", "data": coded({"username": REGISTRY_USER, "password": password})}
    made = child(desired, "v1", "Secret", name, names.ZOOKEEPER, content)
    metadata = {key: said for key, said in made["metadata"].items() if key != "ownerReferences"}
    return made | {"metadata": metadata}
