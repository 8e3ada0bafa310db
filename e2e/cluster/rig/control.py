"""The control plane as a machine: etcd, API server, controllers, scheduler, volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rig.keys import KEYS, kubeconfig
from rig.places import API, SERVICE_RANGE, STATE, VOLUMES

if TYPE_CHECKING:
    from pathlib import Path

_READY = f"{API}/readyz"


def plan(bin_dir: Path) -> dict[str, Any]:
    """Return the plan of the machine that holds the control plane."""
    commands = {
        "etcd": _etcd(),
        "kube-apiserver": _api_server(),
        "kube-controller-manager": _controllers(),
        "kube-scheduler": ["--kubeconfig", _who("system:kube-scheduler"), "--leader-elect=false"],
        "volumes": ["--kubeconfig", _who("volumes"), "--root", str(VOLUMES)],
    }
    # Before the API server is ready the roles of the others do not exist, and they would end.
    first = {"etcd", "kube-apiserver"}
    return {
        "host": "control",
        "shared": [str(VOLUMES)],
        "mounts": [],
        "programs": [
            {
                "name": name,
                "command": [str(bin_dir / name), *flags],
                "after": None if name in first else _READY,
                "log": str(STATE / f"{name}.log"),
            }
            for name, flags in commands.items()
        ],
    }


def _who(name: str) -> str:
    return str(kubeconfig(name))


def _key(name: str) -> str:
    return str(KEYS / name)


def _etcd() -> list[str]:
    return [
        "--data-dir", str(STATE / "etcd"),
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        # What a power cut of this machine would cost is started anew anyway.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]  # fmt: skip


def _api_server() -> list[str]:
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--advertise-address=10.99.0.1",
        "--secure-port=6443",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--token-auth-file", _key("tokens.csv"),
        "--client-ca-file", _key("ca.crt"),
        "--tls-cert-file", _key("apiserver.crt"),
        "--tls-private-key-file", _key("apiserver.key"),
        "--kubelet-client-certificate", _key("kubelet-client.crt"),
        "--kubelet-client-key", _key("kubelet-client.key"),
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file", _key("service-accounts.key"),
        "--service-account-signing-key-file", _key("service-accounts.key"),
        "--requestheader-client-ca-file", _key("front-proxy-ca.crt"),
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        "--proxy-client-cert-file", _key("front-proxy.crt"),
        "--proxy-client-key-file", _key("front-proxy.key"),
    ]  # fmt: skip


def _controllers() -> list[str]:
    return [
        "--kubeconfig", _who("system:kube-controller-manager"),
        "--leader-elect=false",
        "--use-service-account-credentials",
        "--service-account-private-key-file", _key("service-accounts.key"),
        "--root-ca-file", _key("ca.crt"),
        "--allocate-node-cidrs=false",
        "--node-monitor-grace-period=20s",
        # With the default of 20 it spends its first seconds waiting for itself.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]  # fmt: skip
