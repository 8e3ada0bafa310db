"""Where the API server is and who we are: a pod's service account, or a kubeconfig file."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's service account."""


class CredentialsError(Exception):
    """There is no way to an API server; the message says what is missing, `cure` what helps."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(message)
        self.cure = cure


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """An API server and how to speak to it."""

    server: str
    """Base address without a slash at its end."""
    namespace: str = "default"
    ca: bytes | None = None
    """PEM; None: the authorities that the system trusts."""
    verify: bool = True
    certificate: bytes | None = None
    key: bytes | None = None
    static_token: str | None = None
    token_file: Path | None = None
    """Read again at each use: Kubernetes replaces it about every hour."""

    def token(self) -> str | None:
        """Return the bearer token of now, None where a certificate says who we are."""
        if self.token_file is not None:
            return self.token_file.read_text(encoding="utf-8").strip()
        return self.static_token

    def tls(self) -> ssl.SSLContext | None:
        """Return how to speak TLS; None where the address is not https."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.ca.decode() if self.ca else None)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.key:
            # OpenSSL takes a certificate from files only; they are gone before this returns.
            with tempfile.TemporaryDirectory() as folder:
                both = Path(folder) / "client.pem"
                both.touch(mode=0o600)
                both.write_bytes(self.certificate + b"\n" + self.key)
                context.load_cert_chain(both)
        return context


def find(kubeconfig: Path | None, environment: Mapping[str, str] = os.environ) -> Credentials:
    """Return the named file's, else the pod's, else those of KUBECONFIG or ~/.kube/config."""
    if kubeconfig is not None:
        return from_file(kubeconfig)
    if "KUBERNETES_SERVICE_HOST" in environment:
        return of_pod(environment)
    said = environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    usual = Path(said) if said else Path.home() / ".kube" / "config"
    if not usual.exists():
        raise CredentialsError(
            f"no Kubernetes: neither a pod's service account nor {usual}",
            "give --kubeconfig FILE, or run it in a pod with a service account",
        )
    return from_file(usual)


def of_pod(environment: Mapping[str, str], folder: Path = ACCOUNT) -> Credentials:
    """Return the credentials that Kubernetes gives every pod with a service account."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    if not (folder / "token").exists():
        raise CredentialsError(
            f"{folder}/token is missing: the pod has no service account's token",
            "set automountServiceAccountToken: true for this pod",
        )
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
        ca=(folder / "ca.crt").read_bytes(),
        token_file=folder / "token",
    )


def from_file(path: Path) -> Credentials:
    """Return what a kubeconfig's current context says."""
    try:
        said = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}", "name a kubeconfig file") from error
    except yaml.YAMLError as error:
        raise CredentialsError(f"{path}: not YAML: {error}", "name a kubeconfig file") from error
    try:
        return _of_context(said, path.parent)
    except (KeyError, TypeError, StopIteration, binascii.Error) as error:
        raise CredentialsError(
            f"{path}: not a kubeconfig with a current context ({error})",
            "see `kubectl config view`; `kubectl config use-context` sets one",
        ) from error


def _of_context(said: Mapping[str, Any], folder: Path) -> Credentials:
    context = _named(said["contexts"], said["current-context"])["context"]
    cluster = _named(said["clusters"], context["cluster"])["cluster"]
    user = _named(said["users"], context["user"])["user"] if context.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        raise CredentialsError(
            f"user {context['user']} gets its credentials from a program, which is not supported",
            "use a token or a client certificate, like that of a service account",
        )
    token_file = user.get("tokenFile")
    return Credentials(
        server=cluster["server"].rstrip("/"),
        namespace=context.get("namespace", "default"),
        ca=_bytes(cluster, "certificate-authority", folder),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        certificate=_bytes(user, "client-certificate", folder),
        key=_bytes(user, "client-key", folder),
        static_token=user.get("token"),
        token_file=folder / token_file if token_file else None,
    )


def _named(entries: list[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _bytes(said: Mapping[str, Any], key: str, folder: Path) -> bytes | None:
    """Return a part from the file itself, or from one that it names."""
    if inline := said.get(f"{key}-data"):
        return base64.b64decode(inline, validate=True)
    if not (named := said.get(key)):
        return None
    try:
        return (folder / str(named)).read_bytes()
    except OSError as error:
        raise CredentialsError(f"{folder / named}: {error.strerror}", f"correct {key}") from error
