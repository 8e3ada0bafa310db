"""TLS of a cluster: who signs the members' certificates, and who is served without."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.values import Duration


class AuthorityMode(StrEnum):
    """Who signs the certificates."""

    SELF_SIGNED = "SelfSigned"
    USER_PROVIDED = "UserProvided"
    CERT_MANAGER = "CertManager"


class Strictness(StrEnum):
    """Who is served."""

    PERMISSIVE = "Permissive"
    ENFORCING = "Enforcing"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerRef:
    """An issuer of cert-manager."""

    name: str = described("Name of the issuer.", size_max=253, size_min=1)
    kind: str = described("Issuer or ClusterIssuer.", default="Issuer", size_max=63)
    group: str = described("Its API group.", default="cert-manager.io", size_max=253)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The authority that signs the members' certificates."""

    mode: AuthorityMode = described(
        "SelfSigned: the operator creates one, in the Secret CLUSTER-ca. UserProvided: yours, in"
        " secretName. CertManager: cert-manager's issuer writes each shard's Secret.",
        default=AuthorityMode.SELF_SIGNED,
    )
    secret_name: str | None = described(
        "With UserProvided: Secret with tls.crt and tls.key of the authority, and ca.crt with the"
        " authorities that members trust. While you replace the authority, ca.crt holds both.",
        default=None,
        size_max=253,
        size_min=1,
    )
    issuer_ref: IssuerRef | None = described("With CertManager: who signs.", default=None)
    validity: Duration = described(
        "With SelfSigned: how long an authority is valid; whole days count.",
        default=Duration("8760h"),
    )
    renew_before: Duration = described(
        "With SelfSigned: how long before its end another one takes its place.",
        default=Duration("720h"),
    )
    overlap: Duration = described(
        "With SelfSigned: how long each of the three phases lasts in which members and clients"
        " learn to trust a new authority before anybody has its certificate.",
        default=Duration("10m"),
    )


class ClientsAuthorityMode(StrEnum):
    """Who signs the certificates of clients."""

    SELF_SIGNED = "SelfSigned"
    USER_PROVIDED = "UserProvided"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsAuthority:
    """The authority that signs the clients' certificates."""

    mode: ClientsAuthorityMode = described(
        "SelfSigned: the operator creates one, in the Secret CLUSTER-clients-ca. UserProvided:"
        " yours, in secretName.",
        default=ClientsAuthorityMode.SELF_SIGNED,
    )
    secret_name: str | None = described(
        "With UserProvided: Secret with ca.crt, the authorities that sign for clients, without any"
        " between; with tls.crt and tls.key of one of them ImagoUsers of type Tls get theirs, too."
        " While you replace it, ca.crt holds both.",
        default=None,
        size_max=253,
        size_min=1,
    )
    validity: Duration = described(
        "With SelfSigned: how long an authority is valid; whole days count.",
        default=Duration("8760h"),
    )
    renew_before: Duration = described(
        "With SelfSigned: how long before its end another one takes its place.",
        default=Duration("1440h"),
    )
    overlap: Duration = described(
        "How long brokers trust a new authority before it signs, and the former one after all users"
        " have other certificates.",
        default=Duration("10m"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates of members, and who is served without TLS."""

    ca: Authority = described("Who signs the certificates.", default=Authority)
    clients_ca: ClientsAuthority | None = described(
        "Who signs the clients' certificates; brokers check those that are shown, and take their"
        " common names for users. Unless given, certificates name nobody.",
        default=None,
    )
    validity: Duration = described(
        "How long certificates of members are valid; whole days count.",
        default=Duration("2160h"),
    )
    renew_before: Duration = described(
        "How long before their end they are replaced, without a restart.",
        default=Duration("720h"),
    )
    clients: Strictness = described(
        "Permissive: clients with and without TLS on RocketMQ's ports. Enforcing: with TLS only."
        " MetaQ has a port of its own for TLS, 8124.",
        default=Strictness.PERMISSIVE,
    )
    members: Strictness = described(
        "Permissive: members copy the log from each other over TLS where the other side can."
        " Enforcing: over TLS only, from members of the shard only.",
        default=Strictness.PERMISSIVE,
    )
