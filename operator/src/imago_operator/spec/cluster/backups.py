"""Where a cluster's backups go, and the backup that a new cluster begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.rule import Rule, exactly_one

NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
URL_PATTERN: Final = r"^(s3|gs|az)://[^@?# ]+$"
TIME_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?Z$"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupPlace:
    """A bucket, or a claim that all pods mount."""

    url: str | None = described(
        "Bucket and prefix: s3://BUCKET/PREFIX, gs://… or az://…. Give each cluster a prefix of"
        " its own.",
        default=None,
        pattern=URL_PATTERN,
        size_max=512,
    )
    claim_name: str | None = described(
        "Or a claim that several nodes can mount (ReadWriteMany).",
        default=None,
        size_min=1,
        size_max=253,
    )
    endpoint: str | None = described(
        "Address of a service that is not the cloud's own.",
        default=None,
        pattern=r"^https?://[^ /]+$",
        size_max=253,
    )
    region: str | None = described(
        "Region of the bucket.", default=None, pattern=r"^[A-Za-z0-9-]+$", size_max=63
    )
    credentials_secret_name: str | None = described(
        "Secret with access_key_id and secret_access_key (Google: service_account.json; Azure:"
        " account_name, account_key); without it the pods' own identity counts.",
        default=None,
        size_min=1,
        size_max=253,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(BackupPlace):
    """The backup that the cluster begins with."""

    backup: str = described(
        "Name of the backup; latest: the newest that is complete.",
        default="latest",
        pattern=NAME_PATTERN,
        size_max=63,
    )
    point_in_time: str | None = described(
        "Nothing that was stored later, as 2027-05-03T10:00:00Z.",
        default=None,
        pattern=TIME_PATTERN,
        size_max=24,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """How a cluster begins."""

    recovery: Recovery | None = described(
        "The backup that its first members are made of, before their first start, and never where"
        " there are data. As many shards as the backup has.",
        default=None,
    )


RULES: Final[tuple[Rule, ...]] = (
    *(exactly_one(path, "url", "claimName") for path in ("spec.backup", "spec.bootstrap.recovery")),
    *(
        Rule(
            path=path,
            cel="!has(self.claimName) || !(has(self.endpoint) || has(self.region)"
            " || has(self.credentialsSecretName))",
            holds=lambda node: (
                "claimName" not in node
                or not {"endpoint", "region", "credentialsSecretName"} & node.keys()
            ),
            message="endpoint, region and credentialsSecretName go with url",
        )
        for path in ("spec.backup", "spec.bootstrap.recovery")
    ),
    Rule(
        path="spec.bootstrap",
        cel="self == oldSelf",
        holds_after=lambda node, old: bool(node == old),
        message="bootstrap says how the cluster began: it can only be removed",
    ),
)
