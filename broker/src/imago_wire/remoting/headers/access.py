"""Headers of users, access lists and, in 4.9, access configuration."""

from __future__ import annotations

from imago_wire.remoting.fields import Header, header


@header
class CreateUserRequestHeader(Header):
    username: str | None = None


@header
class UpdateUserRequestHeader(Header):
    username: str | None = None


@header
class DeleteUserRequestHeader(Header):
    username: str | None = None


@header
class GetUserRequestHeader(Header):
    username: str | None = None


@header
class ListUsersRequestHeader(Header):
    filter: str | None = None


@header
class CreateAclRequestHeader(Header):
    subject: str | None = None


@header
class UpdateAclRequestHeader(Header):
    subject: str | None = None


@header
class DeleteAclRequestHeader(Header):
    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@header
class GetAclRequestHeader(Header):
    subject: str | None = None


@header
class ListAclsRequestHeader(Header):
    subject_filter: str | None = None
    resource_filter: str | None = None


@header
class CreateAccessConfigRequestHeader(Header):
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@header
class DeleteAccessConfigRequestHeader(Header):
    access_key: str


@header
class UpdateGlobalWhiteAddrsConfigRequestHeader(Header):
    """`global_white_addrs` is a comma list."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


@header
class GetBrokerAclConfigResponseHeader(Header):
    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
