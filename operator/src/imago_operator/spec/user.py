"""ImagoUser: who may do what in a cluster, and the Secret with what a client needs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.schema.column import AGE, CLUSTER_OF, MESSAGE, READY, STATUS, Column
from imago_operator.spec.schema.common import (
    USER_PATTERN,
    USER_SIZE_MAX,
    ChildMetadata,
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.values import Duration
from imago_operator.spec.topic import DeletionPolicy

OBJECT_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
ACLS_MAX: Final = 256
HOSTS_MAX: Final = 64
ANONYMOUS: Final = "anonymous"
"""Clients without credentials: such a user has rules alone."""


class AuthenticationType(StrEnum):
    """How a user proves its identity."""

    PASSWORD = "Password"  # noqa: S105  the name of a way
    TLS = "Tls"
    TOKEN = "Token"  # noqa: S105  the same
    EXTERNAL = "External"


class AclEffect(StrEnum):
    """Whether a rule grants a right or denies it."""

    ALLOW = "Allow"
    DENY = "Deny"


class ResourceType(StrEnum):
    """Kinds of resources that a rule applies to."""

    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    TRANSACTION = "Transaction"
    PIPELINE = "Pipeline"
    ANY = "Any"


class PatternType(StrEnum):
    """How a rule's name matches names of resources."""

    LITERAL = "literal"
    PREFIX = "prefix"


class AclOperation(StrEnum):
    """What is done to a resource."""

    ALL = "all"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    DESCRIBE = "describe"
    LIST = "list"
    ADMINISTER = "administer"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKeyRef:
    """An entry of a Secret in the same namespace."""

    name: str = described("Name of the Secret.", pattern=OBJECT_PATTERN, size_max=253, size_min=1)
    key: str = described(
        "Entry of the Secret.", default="password", pattern=r"^[-._a-zA-Z0-9]+$", size_max=253
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """How the user proves its identity."""

    type: AuthenticationType = described(
        "Password: it signs RocketMQ requests and logs in with a password. Tls: it shows a"
        " certificate with its name, which the cluster's spec.tls.clientsCa signs. Token: it calls"
        " the admin interface, or logs in to the dashboard, with a bearer token; RocketMQ's and"
        " MetaQ's protocols have no such thing. External: something else proves it, such as a"
        " certificate of yours; anonymous is such a user.",
        default=AuthenticationType.PASSWORD,
    )
    password_secret_ref: SecretKeyRef | None = described(
        "Secret with the password; unless given, the operator generates one.", default=None
    )
    rotate_every: Duration | None = described(
        "How often the operator generates a new password.", default=None
    )
    overlap: Duration = described(
        "How long the former password stays valid after a change, so that clients can read the"
        " new one; and the former token, when somebody has asked for another.",
        default=Duration("10m"),
    )
    validity: Duration = described(
        "With Tls and Token: how long a certificate or token is valid; of certificates whole days"
        " count.",
        default=Duration("2160h"),
    )
    renew_before: Duration = described(
        "With Tls and Token: how long before its end the Secret gets another one, half of its time"
        " at most.",
        default=Duration("720h"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclResource:
    """Kinds of resources that a rule applies to."""

    type: ResourceType = described("Kind of the resource; Any: every kind.")
    name: str | None = described(
        "Name of the resource, or prefix of its names; absent for the cluster.",
        default=None,
        size_max=255,
    )
    pattern_type: PatternType = described(
        "literal: exactly this name. prefix: all names that begin with it.",
        default=PatternType.LITERAL,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One permission or denial. The most specific one that matches a request decides."""

    effect: AclEffect = described(
        "Whether the rule grants the right or denies it.", default=AclEffect.ALLOW
    )
    resource: AclResource = described("Resource that the rule applies to.")
    operations: tuple[AclOperation, ...] = described(
        "Operations that the rule allows or denies; all: every operation.", size_min=1, size_max=9
    )
    hosts: tuple[str, ...] = described(
        "Client addresses and networks that the rule applies to; all unless given.",
        default=(),
        size_max=HOSTS_MAX,
        item_pattern=r"^[0-9a-fA-F.:]+(/[0-9]{1,3})?$",
        item_size_max=49,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAuthorization:
    """What the user may do."""

    acls: tuple[Acl, ...] = described(
        "Rules of the user; a request that no rule allows is denied.",
        default=(),
        size_max=ACLS_MAX,
        plain_list=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuotas:
    """How much of each broker the user may have."""

    producer_bytes_per_second: int | None = described("Bytes sent.", default=None, low=1)
    producer_requests_per_second: int | None = described("Requests that send.", default=None, low=1)
    consumer_bytes_per_second: int | None = described("Bytes received.", default=None, low=1)
    consumer_requests_per_second: int | None = described(
        "Requests that receive.", default=None, low=1
    )
    connections: int | None = described("Connections at one time.", default=None, low=1)
    connections_per_address: int | None = described(
        "Connections at one time from one address.", default=None, low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretTemplate:
    """Additions to the Secret."""

    metadata: ChildMetadata = described("Labels and annotations to add.", default=ChildMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpec:
    """Desired state of the user. Fields set here override what brokers have."""

    cluster_ref: ClusterRef = described("Cluster of the user. Immutable.")
    user_name: str | None = described(
        "Name of the user; unless given, that of the resource. Immutable.",
        default=None,
        pattern=USER_PATTERN,
        size_max=USER_SIZE_MAX,
        size_min=1,
    )
    authentication: Authentication = described(
        "How the user proves its identity.", default=Authentication
    )
    authorization: UserAuthorization = described("What the user may do.", default=UserAuthorization)
    quotas: UserQuotas = described(
        "Limits of the user on each broker; absent ones are unlimited.", default=UserQuotas
    )
    secret_name: str | None = described(
        "Name of the Secret for clients; unless given, that of the resource. Immutable.",
        default=None,
        pattern=OBJECT_PATTERN,
        size_max=253,
        size_min=1,
    )
    secret_template: SecretTemplate = described(
        "Additions to the Secret for clients.", default=SecretTemplate
    )
    deletion_policy: DeletionPolicy = described(
        "Delete: the user's next request is refused once this resource is deleted. Retain: brokers"
        " keep the user.",
        default=DeletionPolicy.DELETE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The Secret, as tools for service bindings look for it."""

    name: str = described("Name of the Secret.", size_max=253)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCertificate:
    """The certificate in the user's Secret."""

    signer: str = described("Hash of the authority that signed it.", size_max=64)
    issued: str = described("When it was made.", size_max=40)
    not_after: str = described("When it ends.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserToken:
    """The token in the user's Secret."""

    number: str = described("Its number, as brokers list it.", size_max=64)
    issued: str = described("When it was made.", size_max=40)
    not_after: str = described("When it ends.", size_max=40)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserStatus:
    """Observed state of the user."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    user_name: str | None = described("Name of the user.", default=None, size_max=USER_SIZE_MAX)
    secret_name: str | None = described(
        "Secret with all settings that a client needs.", default=None, size_max=253
    )
    binding: Binding | None = described("The same, for tools of service bindings.", default=None)
    credentials_generation: int = described(
        "How many passwords, certificates or tokens the user has had.", default=0, low=0
    )
    credentials_version: str | None = described(
        "Version of the Secret whose password brokers have.", default=None, size_max=128
    )
    last_rotation: str | None = described(
        "When brokers got the password, or the certificate or token was made.",
        default=None,
        size_max=40,
    )
    next_rotation: str | None = described(
        "When the operator makes the next password, certificate or token.",
        default=None,
        size_max=40,
    )
    certificate: UserCertificate | None = described(
        "With Tls: the certificate in the Secret.", default=None
    )
    token: UserToken | None = described("With Token: the token in the Secret.", default=None)
    renewed: str | None = described(
        "Value of the annotation imago.dev/force-renew that was applied last.",
        default=None,
        size_max=253,
    )
    applied_hash: str | None = described(
        "Hash of the rules that brokers have confirmed.", default=None, size_max=64
    )


COLUMNS: Final = (
    READY,
    STATUS,
    CLUSTER_OF,
    Column("User", ".status.userName"),
    Column("Secret", ".status.secretName"),
    AGE,
    Column("Next rotation", ".status.nextRotation", "date", priority=1),
    MESSAGE,
)
"""What `kubectl get` shows."""
