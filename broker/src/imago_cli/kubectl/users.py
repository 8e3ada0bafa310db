"""`kubectl imago user`: ImagoUsers, and the files that a client of one needs."""

from __future__ import annotations

import base64
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from imago_cli.connect import Yes, confirm
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.kubectl.brokers import ClusterBrokers
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, USERS, Kubectl, KubectlError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import print_json, print_line, print_table, say
from imago_cli.users.user import resource_of, resource_text
from imago_operator.model import names
from imago_operator.spec.kinds import API_VERSION, USER
from imago_operator.spec.schema.values import Duration
from imago_operator.spec.user import Authentication

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Name = Annotated[str, Argument(help="Name of an ImagoUser.", show_default=False)]
ENTRIES_OF_BINDINGS: Final = frozenset({"type", "provider", "host", "port"})
TOOLS: Final = "tools.yml"
"""What RocketMQ's mqadmin reads its credentials from."""
TLS_PROPERTIES: Final = "tls.properties"
"""What RocketMQ's Java client reads its certificate from (`-Dtls.config.file`)."""
CERTIFICATE: Final = "tls.crt"


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    user = CommandGroup("Show, make and change users of a cluster.")
    for command in (list_users, show, create, rotate, delete, files):
        user.add("list" if command is list_users else command.__name__, command)
    root.add("user", user)


def list_users(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """List the users that brokers have, with the objects that declare them."""
    kube.get(CLUSTERS, cluster)
    declared = {_name_of(one): one for one in kube.all_of(USERS) if _is_of(one, cluster)}
    rows = [
        _row(one["name"], one, declared.get(one["name"]))
        for one in ClusterBrokers(kube, cluster).users()
    ]
    known = {row["user"] for row in rows}
    rows += [_row(name, None, one) for name, one in sorted(declared.items()) if name not in known]
    if output is Format.JSON:
        print_json(rows)
    elif rows:
        cells = [tuple(map(str, row.values())) for row in rows]
        print_table("", tuple(rows[0]), cells)
    else:
        say(f"{cluster} has no users")


def _of_cluster(kube: Kubectl, cluster: str, name: str) -> Mapping[str, Any]:
    """Return the ImagoUser that a cluster's user is declared by; its own name counts first."""
    users: list[Mapping[str, Any]] = [one for one in kube.all_of(USERS) if _is_of(one, cluster)]
    users.sort(key=lambda one: one["metadata"]["name"] != name)
    found = next((u for u in users if name in (u["metadata"]["name"], _name_of(u))), None)
    if found is None:
        raise CommandError(
            f"{cluster} has no ImagoUser {name} here",
            cure=f"`kubectl imago user list {cluster}` lists the users that it has",
        )
    return found


def show(
    name: Annotated[
        str,
        Argument(
            help="Name of an ImagoUser; with --cluster, of a user as brokers call it, too.",
            show_default=False,
        ),
    ],
    cluster: Annotated[
        str | None,
        Option("--cluster", help="Only a user of this ImagoCluster, by either name."),
    ] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Show an ImagoUser: its state, its Secret, its rules."""
    found = kube.get(USERS, name) if cluster is None else _of_cluster(kube, cluster, name)
    if output is Format.JSON:
        print_json({key: found.get(key, {}) for key in ("metadata", "spec", "status")})
        return
    status, spec = found.get("status") or {}, found["spec"]
    ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), None)
    told = f"{ready['status']} {ready['reason']} {ready.get('message', '')}" if ready else "not yet"
    print_line(f"user {_name_of(found)} of {spec['clusterRef']['name']}: Ready {told}".rstrip())
    for label, key in (
        ("secret", "secretName"),
        (f"{_credential(spec)} since", "lastRotation"),
        (f"next {_credential(spec)}", "nextRotation"),
    ):
        if status.get(key):
            print_line(f"{label}: {status[key]}")
    for proof in ("certificate", "token"):
        if status.get(proof):
            print_line(f"{proof} until: {status[proof]['notAfter']}")
    for one in status.get("conditions", ()):
        if one["type"] != "Ready":
            print_line(f"{one['type']}: {one['reason']}: {one.get('message', '')}")
    rows = [
        (
            acl.get("effect", "Allow"),
            resource_text(acl["resource"]),
            ", ".join(acl["operations"]),
            ", ".join(acl.get("hosts", ())) or "everywhere",
        )
        for acl in (spec.get("authorization") or {}).get("acls", ())
    ]
    print_table("", ("effect", "resource", "operations", "from"), rows)


def create(
    name: Name,
    cluster: Annotated[str, Option("--cluster", help="Name of an ImagoCluster.")],
    allow: Annotated[
        list[str] | None,
        Option(help="topic:NAME=publish,describe or group:PREFIX*=subscribe; repeatable."),
    ] = None,
    rotate_every: Annotated[
        str | None, Option(help="How often its password is replaced: 720h.")
    ] = None,
    certificate: Annotated[
        bool, Option(help="It shows a certificate, and has no password.")
    ] = False,
    token: Annotated[
        bool,
        Option(help="It has a bearer token for the admin interface, and no password."),
    ] = False,
    validity: Annotated[
        str | None, Option(help="How long a certificate or token is valid: 2160h.")
    ] = None,
    dry_run: Annotated[bool, Option(help="Only print the object.")] = False,
    *,
    kube: Kubectl,
) -> None:
    """Make an ImagoUser.

    The operator makes its password, certificate or token, and writes its Secret.
    """
    if certificate and token:
        raise CommandUsageError("--token: a user has a certificate or a token", cure="give one")
    way = "Tls" if certificate else "Token" if token else "Password"
    authentication = _authentication(way, rotate_every, validity)
    spec: dict[str, Any] = {
        "clusterRef": {"name": cluster},
        "authorization": {"acls": [_acl(text) for text in allow or ()]},
    }
    if authentication:
        spec["authentication"] = authentication
    made = {
        "apiVersion": API_VERSION,
        "kind": USER.name,
        "metadata": {"name": name},
        "spec": spec,
    }
    if dry_run:
        print_line(json.dumps(made, indent=2))
        return
    remark = _open(kube, cluster)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(made, file)
        file.flush()
        kube.call("create", "-f", file.name)
    say(f"user {name}: made; `kubectl imago user files {name}` writes what its clients need")
    if remark:
        say(remark)


def _authentication(way: str, rotate_every: str | None, validity: str | None) -> dict[str, str]:
    if way != "Password" and rotate_every is not None:
        raise CommandUsageError(
            "--rotate-every: goes with a password",
            cure="give --validity with --certificate or --token",
        )
    if way == "Password" and validity is not None:
        raise CommandUsageError(
            "--validity: goes with a certificate or a token",
            cure="give --certificate or --token, or --rotate-every",
        )
    if way == "Password":
        return {} if rotate_every is None else {"rotateEvery": rotate_every}
    return {"type": way} | ({} if validity is None else _lasting(validity))


def _lasting(validity: str) -> dict[str, str]:
    """Return a validity; one that the usual renewal does not fit in, with one that does."""
    try:
        seconds = Duration(validity).seconds
    except ValueError as error:
        cure = "--validity 720h"
        raise CommandUsageError(f"--validity {validity}: {error}", cure=cure) from error
    if seconds > Authentication().renew_before.seconds:
        return {"validity": validity}
    return {"validity": validity, "renewBefore": f"{round(seconds / 4)}s"}


def _credential(spec: Mapping[str, Any]) -> str:
    """Return what a user proves its identity by."""
    said = (spec.get("authentication") or {}).get("type")
    return {"Tls": "certificate", "Token": "token"}.get(str(said), "password")


def rotate(name: Name, *, kube: Kubectl) -> None:
    """Have the operator replace a user's password, certificate or token.

    The one before counts on: a password or token for the overlap, a certificate until its end.
    """
    spec = kube.get(USERS, name)["spec"]
    given = (spec.get("authentication") or {}).get("passwordSecretRef")
    if given:
        raise CommandError(
            f"you keep the password of {name} in Secret {given['name']}",
            cure="write another one into it",
        )
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kube.annotate(USERS, name, {names.FORCE_RENEW: moment})
    what = _credential(spec)
    say(f"user {name}: its {what} is replaced; clients read the new one from its Secret")


def delete(name: Name, yes: Yes = False, *, kube: Kubectl) -> None:
    """Delete an ImagoUser and wait until no broker serves the user any more."""
    confirm(f"Delete ImagoUser {name}? Its clients are refused at once.", yes=yes)
    kube.call("delete", USERS, name, "--timeout=50s")
    say(f"user {name}: deleted")


def files(
    name: Name,
    out: Annotated[Path | None, Option(help="Folder to write to; unless given, NAME.")] = None,
    *,
    kube: Kubectl,
) -> None:
    """Write what a client of the user needs, one file an entry, for you alone (0600)."""
    status = kube.get(USERS, name).get("status") or {}
    if not status.get("secretName"):
        raise CommandError(
            f"the operator has not made the Secret of {name}",
            cure=f"kubectl imago user show {name}",
        )
    data = kube.get("secrets", status["secretName"]).get("data") or {}
    found = {key: base64.b64decode(value).decode() for key, value in data.items()}
    folder = out or Path(name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=False)
    except FileExistsError:
        raise CommandUsageError(f"{folder} is there already", cure="name another --out") from None
    if "password" in found:
        found[TOOLS] = _tools(found)
    if CERTIFICATE in found:
        found[TLS_PROPERTIES] = _tls_properties(folder.absolute())
    for entry, text in found.items():
        if entry not in ENTRIES_OF_BINDINGS:
            _write(folder / entry, text)
    say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")


def _open(kube: Kubectl, cluster: str) -> str:
    """Return what to know of a cluster that checks no rights; KubectlError: there is none."""
    try:
        spec = kube.get(CLUSTERS, cluster)["spec"]
    except KubectlError as error:
        if "(Forbidden)" in error.message:
            return ""  # who may make users need not see clusters
        raise
    config = spec["brokers"].get("config") or {}
    simple = (spec.get("authorization") or {}).get("type") == "Simple"
    if simple or str(config.get("acl.enabled")).lower() == "true":
        return ""
    return f"brokers of {cluster} check no rights until its spec.authorization.type is Simple"


def _tools(found: Mapping[str, str]) -> str:
    pairs = (("accessKey", "username"), ("secretKey", "password"))
    return "".join(f"{key}: {json.dumps(found[entry])}\n" for key, entry in pairs)


def _tls_properties(folder: Path) -> str:
    return (
        "tls.test.mode.enable=false\n"
        "tls.client.authServer=true\n"
        f"tls.client.trustCertPath={folder}/ca.crt\n"
        f"tls.client.certPath={folder}/{CERTIFICATE}\n"
        f"tls.client.keyPath={folder}/tls.key\n"
    )


def _write(path: Path, text: str) -> None:
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text if text.endswith("\n") else f"{text}\n")


def _acl(text: str) -> dict[str, Any]:
    resource, _, operations = text.partition("=")
    listed = [word for word in operations.split(",") if word]
    if not listed:
        raise CommandUsageError(
            f"--allow {text}: names no operation", cure="--allow topic:orders=publish,describe"
        )
    return {"resource": resource_of(resource), "operations": listed}


def _is_of(user: Mapping[str, Any], cluster: str) -> bool:
    return bool(user["spec"]["clusterRef"]["name"] == cluster)


def _name_of(user: Mapping[str, Any]) -> str:
    return str(user["spec"].get("userName") or user["metadata"]["name"])


def _row(
    name: str, one: Mapping[str, Any] | None, declared: Mapping[str, Any] | None
) -> dict[str, Any]:
    had: Mapping[str, Any] = one or {}
    return {
        "user": name,
        "brokers": "yes" if one else "no",
        "super": _yes(had.get("super")),
        "signs": _yes(had.get("signs")),
        "rules": len(had.get("rules", ())),
        "resource": declared["metadata"]["name"] if declared else "",
        "ready": _ready(declared),
    }


def _ready(declared: Mapping[str, Any] | None) -> str:
    listed: Iterable[Mapping[str, Any]] = ((declared or {}).get("status") or {}).get(
        "conditions", ()
    )
    return next((str(c["reason"]) for c in listed if c["type"] == "Ready"), "")


def _yes(value: object) -> str:
    return "yes" if value else ""
