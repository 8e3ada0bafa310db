"""What is read of a cluster's certificates: Secrets by name, and users that have certificates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_operator.certificates.plan import holders
from imago_operator.certificates.state import (
    CERTIFICATE,
    AuthorityPhase,
    SeenCertificates,
    SeenClients,
    SeenHolder,
    authority_of,
    certificate_of,
    clients_of,
    pem_parts,
    secret_of_holder,
)
from imago_operator.contents.belonging import cluster_of
from imago_operator.model import names
from imago_operator.model.desired import clients_ca_secret, signing
from imago_operator.model.secret_data import decoded
from imago_operator.model.state import parsed
from imago_operator.spec.cluster.tls import ClientsAuthorityMode
from imago_operator.spec.kinds import USER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imago_operator.model.desired import Desired
    from imago_operator.ports import KubePort

    Manifest = Mapping[str, Any]


async def certificates(
    kube: KubePort, desired: Desired, shards: Sequence[int], namespaces: Iterable[str]
) -> SeenCertificates | None:
    """Return authorities and certificates; None where there are to be none.

    `namespaces`: those that the operator works in. BlockedError: it may not read them.
    """
    tls, get, namespace = signing(desired), kube.get, desired.namespace
    if tls is None:
        return None
    read = holders(desired, shards)
    authority = tls.ca.secret_name or names.authority(desired.name)
    wanted = [authority, *(secret_of_holder(desired.name, holder) for holder in read)]
    asked = clients_ca_secret(desired)
    if asked:
        wanted.append(asked)
    found = await asyncio.gather(*(get("Secret", namespace, name) for name in wanted))
    if any(one is not None and "type" not in one for one in found):
        return None  # who looks may know that they are there, and not what is in them
    of_clients = found.pop() if asked else None
    members = {n: certificate_of(one) for n, one in zip(read, found[1:], strict=True)}
    return SeenCertificates(
        authority=authority_of(found[0]),
        read=frozenset(read),
        members={n: one for n, one in members.items() if one is not None},
        clients=await _clients(kube, desired, of_clients, namespaces) if asked else None,
    )


async def _clients(
    kube: KubePort, desired: Desired, secret: Manifest | None, namespaces: Iterable[str]
) -> SeenClients:
    """Return what signs for clients; users are asked about while it changes."""
    seen = clients_of(secret)
    ca = desired.spec.tls.clients_ca if desired.spec.tls is not None else None
    if ca is None or ca.mode is ClientsAuthorityMode.USER_PROVIDED:
        return seen
    if seen.authority is not None and seen.authority.phase is not AuthorityPhase.REPLACING:
        return seen
    lists = await asyncio.gather(*(kube.list(USER.name, namespace) for namespace in namespaces))
    place = (desired.namespace, desired.name)
    users = [one for items in lists for one in items if cluster_of(one) == place]
    holding = [
        (one, said) for one in users if (said := (one.get("status") or {}).get("certificate"))
    ]
    holders = tuple(_holder(one, said) for one, said in holding)
    former = "" if seen.authority else await _signers(kube, [one for one, _ in holding])
    return clients_of(secret, holders, former)


def _holder(user: Manifest, said: Manifest) -> SeenHolder:
    metadata = user["metadata"]
    return SeenHolder(
        name=f"{metadata['namespace']}/{metadata['name']}",
        signer=str(said["signer"]),
        issued=parsed(said["issued"]),
    )


async def _signers(kube: KubePort, users: Iterable[Manifest]) -> str:
    """Return who has signed what users have: each Secret has it behind the certificate."""
    places = [
        (user["metadata"]["namespace"], str(user["status"].get("secretName") or ""))
        for user in users
    ]
    found = await asyncio.gather(*(kube.get("Secret", *place) for place in places if place[1]))
    parts = (pem_parts(decoded(one or {}).get(CERTIFICATE, ""))[1:] for one in found)
    return "".join(dict.fromkeys(part for one in parts for part in one))
