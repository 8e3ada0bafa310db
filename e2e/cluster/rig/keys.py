"""Certificates of the API server and tokens of everybody who speaks to it."""

from __future__ import annotations

import secrets
import subprocess
from typing import TYPE_CHECKING

from rig.places import API, STATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEYS = STATE / "keys"
_NAMES = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
_NAMES += ["kubernetes.default.svc.cluster.local"]
_ADDRESSES = ["10.99.0.1", "10.96.0.1", "127.0.0.1"]
_PEOPLE = {
    "admin": "system:masters",
    "volumes": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
}


def make(nodes: int) -> None:
    """Make all keys once; later calls keep what is there."""
    if (KEYS / "tokens.csv").exists():
        return
    KEYS.mkdir(parents=True, exist_ok=True)
    _authority("ca")
    _authority("front-proxy-ca")
    names = [*(f"DNS:{name}" for name in _NAMES), *(f"IP:{each}" for each in _ADDRESSES)]
    _signed("apiserver", "ca", "/CN=kube-apiserver", "serverAuth", names)
    _signed("kubelet-client", "ca", "/O=system:masters/CN=apiserver-kubelet", "clientAuth")
    _signed("front-proxy", "front-proxy-ca", "/CN=front-proxy", "clientAuth")
    _openssl("genrsa", "-out", "service-accounts.key", "2048")
    people = dict(_PEOPLE)
    people |= {f"system:node:node{number}": "system:nodes" for number in range(1, nodes + 1)}
    lines = []
    for number, (name, group) in enumerate(people.items()):
        token = secrets.token_hex(16)
        lines.append(f'{token},{name},{number},"{group}"' if group else f"{token},{name},{number}")
        kubeconfig(name).write_text(_kubeconfig(token))
    (KEYS / "tokens.csv").write_text("\n".join(lines) + "\n")


def kubeconfig(name: str) -> Path:
    """Return the file with which somebody reaches the API server."""
    return KEYS / f"{name.replace(':', '-')}.kubeconfig"


def _kubeconfig(token: str) -> str:
    return f"""\
apiVersion: v1
kind: Config
clusters:
- name: rig
  cluster: {{server: "{API}", certificate-authority: {KEYS / "ca.crt"}}}
users:
- name: me
  user: {{token: "{token}"}}
contexts:
- name: rig
  context: {{cluster: rig, user: me}}
current-context: rig
"""


def _authority(name: str) -> None:
    _private(name)
    _openssl("req", "-x509", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-days", "3650",
             "-out", f"{name}.crt")  # fmt: skip


def _signed(name: str, authority: str, subject: str, use: str, names: Sequence[str] = ()) -> None:
    _private(name)
    extensions = KEYS / f"{name}.ext"
    lines = [f"extendedKeyUsage={use}", "keyUsage=digitalSignature,keyEncipherment"]
    if names:
        lines.append(f"subjectAltName={','.join(names)}")
    extensions.write_text("\n".join(lines) + "\n")
    _openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
    _openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.crt",
             "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "3650",
             "-extfile", extensions.name, "-out", f"{name}.crt")  # fmt: skip


def _private(name: str) -> None:
    _openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{name}.key")


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], cwd=KEYS, check=True, capture_output=True)
