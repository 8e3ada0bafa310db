"""The brokers' configuration file, and the account that their pods run under."""

from __future__ import annotations

import base64
import json
from itertools import groupby
from typing import TYPE_CHECKING

from imago_operator import names
from imago_operator.desired import REGISTRY_USER
from imago_operator.manifests.common import Manifest, child
from imago_operator.secret_data import coded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.brokerkeys import Scalar
    from imago_operator.desired import Desired

FILE = "broker.toml"


def config_map(desired: Desired) -> Manifest:
    """Return the ConfigMap with the file that all brokers of the cluster read."""
    text = toml(desired.settings)
    return child(
        desired,
        "v1",
        "ConfigMap",
        names.config(desired.name),
        names.BROKER,
        {"data": {FILE: text}},
    )


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
