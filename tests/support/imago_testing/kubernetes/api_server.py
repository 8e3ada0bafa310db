"""A real API server of Kubernetes without nodes: etcd and kube-apiserver on free loopback ports.

The programs are those of the end-to-end suite's own cluster: built once, then out of a cache.
Nothing runs here that would turn a StatefulSet into pods; a test writes what a node would.
"""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rig.build import programs

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ProcessFailedError, ServerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CRDS = Path(__file__).parents[4] / "manifests" / "crds"
ADMIN = "admin"
TIMEOUT_S = 120
SERVES_S = 60


@dataclass(slots=True)
class ApiServerProcess:
    """A running API server, and the people who may speak to it."""

    folder: Path
    port: int
    etcd_port: int
    tokens: dict[str, str] = field(default_factory=dict)
    processes: list[ServerProcess] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        return self.folder / "keys" / "apiserver.crt"

    def kubeconfig(self, person: str = ADMIN, namespace: str = "default") -> Path:
        """Return a kubeconfig of somebody who is known by a token."""
        path = self.folder / f"{person}.kubeconfig"
        path.write_text(self._kubeconfig({"token": self.tokens[person]}, namespace))
        return path

    def kubeconfig_with_certificate(self) -> Path:
        """Return a kubeconfig of an administrator who is known by a client certificate."""
        user = {
            "client-certificate": str(self.folder / "keys" / "client.crt"),
            "client-key-data": base64.b64encode(
                (self.folder / "keys" / "client.key").read_bytes()
            ).decode(),
        }
        path = self.folder / "certificate.kubeconfig"
        path.write_text(self._kubeconfig(user, "default"))
        return path

    def _kubeconfig(self, user: dict[str, str], namespace: str) -> str:
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        context = {"cluster": "test", "user": "me", "namespace": namespace}
        text: str = yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "me", "user": user}],
                "contexts": [{"name": "test", "context": context}],
                "current-context": "test",
            }
        )
        return text

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        person: str = ADMIN,
        content: str = "application/json",
    ) -> tuple[int, Any]:
        """Call it as somebody; return status and decoded answer."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self.tokens[person]}", "Content-Type": content},
        )
        context = ssl.create_default_context(cafile=str(self.authority))
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def must(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """Call it as an administrator; AssertionError with the answer unless it was done."""
        status, answer = self.call(method, path, body, **how)
        assert status < 300, (method, path, status, answer)
        return answer

    def namespace(self, name: str) -> str:
        """Make a namespace and return its name."""
        self.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def apply(self, path: str, body: Any) -> Any:
        """Apply an object, by the server, which refuses what it does not know."""
        query = "fieldManager=test&fieldValidation=Strict"
        return self.must("PATCH", f"{path}?{query}", body, content="application/apply-patch+yaml")

    def install_crds(self, paths: Iterable[Path] = ()) -> None:
        """Apply definitions, ours unless others are named, and wait until they are served."""
        base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        names = []
        for path in sorted(paths or CRDS.glob("*.yaml")):
            manifest = yaml.safe_load(path.read_text())
            names.append(manifest["metadata"]["name"])
            self.apply(f"{base}/{names[-1]}", manifest)
        wait_until(
            lambda: all(self._is_served(f"{base}/{name}") for name in names),
            seconds_max=SERVES_S,
            what="the definitions are established",
        )

    def _is_served(self, path: str) -> bool:
        conditions = self.must("GET", path).get("status", {}).get("conditions")
        # A definition that brings a status along, as made ones do, has null there at first.
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions or ())


@contextlib.contextmanager
def running_api_server(folder: Path, people: tuple[str, ...] = ()) -> Iterator[ApiServerProcess]:
    """Run an API server for as long as the block lasts; `people` may log in and nothing else."""
    port = free_port_block(3)
    server = ApiServerProcess(folder, port, port + 1)
    server.tokens = {name: secrets.token_hex(16) for name in (ADMIN, *people)}
    _make_keys(server)
    try:
        _start(server, port + 2)
        yield server
    finally:
        for process in reversed(server.processes):
            process.stop()


def _decoded(raw: bytes) -> Any:
    """Return an answer's JSON; its text where it is none, as that of /readyz."""
    try:
        return json.loads(raw or b"{}")
    except ValueError:
        return raw.decode(errors="replace")


def _start(server: ApiServerProcess, peers: int) -> None:
    programs_folder = programs()
    commands = {"etcd": _etcd(server, peers), "kube-apiserver": _api_server(server)}
    for name, flags in commands.items():
        command = [str(programs_folder / name), *flags]
        environment = {"GOMAXPROCS": "2"}
        server.processes.append(ServerProcess.start(name, command, server.folder, env=environment))

    def serves() -> bool:
        for process in server.processes:
            if process.process.poll() is not None:
                raise ProcessFailedError(f"{process.name} ended early:\n{process.log_tail()}")
        try:
            return server.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    wait_until(serves, seconds_max=SERVES_S, what="the API server is ready", poll=0.2)


def _etcd(server: ApiServerProcess, peers: int) -> list[str]:
    url = f"http://127.0.0.1:{server.etcd_port}"
    return [
        "--data-dir=etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-cluster=default=http://127.0.0.1:{peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(server: ApiServerProcess) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{server.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={server.port}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--token-auth-file=keys/tokens.csv",
        "--client-ca-file=keys/client-ca.crt",
        "--tls-cert-file=keys/apiserver.crt",
        "--tls-private-key-file=keys/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=keys/accounts.key",
        "--service-account-signing-key-file=keys/accounts.key",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    ]


def _make_keys(server: ApiServerProcess) -> None:
    keys = server.folder / "keys"
    keys.mkdir(parents=True)
    lines = [
        f'{token},{name},{name},"system:masters"' if name == ADMIN else f"{token},{name},{name}"
        for name, token in server.tokens.items()
    ]
    (keys / "tokens.csv").write_text("\n".join(lines) + "\n")
    _openssl(keys, "genrsa", "-out", "accounts.key", "2048")
    _self_signed(keys, "apiserver", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    _self_signed(keys, "client-ca", "basicConstraints=critical,CA:TRUE")
    _openssl(keys, "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", "client.key")
    subject = "/O=system:masters/CN=somebody"
    _openssl(keys, "req", "-new", "-key", "client.key", "-subj", subject, "-out", "client.csr")
    _openssl(keys, "x509", "-req", "-in", "client.csr", "-CA", "client-ca.crt",
             "-CAkey", "client-ca.key", "-CAcreateserial", "-days", "2",
             "-out", "client.crt")  # fmt: skip


def _self_signed(keys: Path, name: str, extension: str) -> None:
    _openssl(keys, "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{name}.key")
    _openssl(keys, "req", "-x509", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}",
             "-days", "2", "-addext", extension, "-out", f"{name}.crt")  # fmt: skip


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
