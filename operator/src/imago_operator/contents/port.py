"""What the operator asks of brokers about topics, groups and moves, and has them do.

Any broker of the cluster will do: `brokers` are base addresses, the first that answers is taken.
Calls raise `RetryError` for what passes by itself, `BlockedError` for what needs another fact
first, `InvalidError` for what brokers refuse for good. All may be repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from imago_operator.contents.values import (
        IssuedToken,
        SeenBackup,
        SeenGroups,
        SeenShard,
        SeenTopic,
        SeenUser,
    )


class ContentsPort(Protocol):
    """The brokers' HTTP, as far as it is about what is in the cluster."""

    async def topics(self, brokers: Sequence[str]) -> Mapping[str, SeenTopic]:
        """Return all topics but the brokers' own: pages of GET /admin/v1/cluster/topics.

        RetryError without ZooKeeper: what a broker saw long ago is no ground to act on.
        """

    async def put_topic(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        """Make a topic, or change the settings named: PUT /admin/v1/topics/{topic}."""

    async def delete_topic(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        """Delete a topic with its messages: DELETE /admin/v1/topics/{topic}; gone is done."""

    async def groups(self, brokers: Sequence[str], names: Collection[str]) -> SeenGroups:
        """Return these groups, those of them that there are: GET /admin/v1/cluster/groups."""

    async def put_group(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        """Make a group, or change the settings named: PUT /admin/v1/groups/{group}."""

    async def delete_group(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        """Delete settings and offsets: DELETE /admin/v1/groups/{group}; gone is done."""

    async def reset_group(
        self, brokers: Sequence[str], group: str, topic: str, to: str | int, *, operator_epoch: int
    ) -> None:
        """Have a group go on at "earliest", "latest", or ms since 1970, if it has no members.

        POST /admin/v1/groups/{group}/reset with `whenEmpty`; BlockedError while it has any.
        """

    async def users(self, brokers: Sequence[str]) -> Mapping[str, SeenUser]:
        """Return all users: pages of GET /admin/v1/users."""

    async def put_user(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        """Make a user, or change what the body names: PUT /admin/v1/users/{user}."""

    async def delete_user(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        """Delete a user on all shards: DELETE /admin/v1/users/{user}; gone is done."""

    async def make_token(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> IssuedToken:
        """Make a bearer token: POST /admin/v1/users/{user}/tokens. Repeated it is another one."""

    async def revoke_token(
        self, brokers: Sequence[str], name: str, number: str, *, operator_epoch: int
    ) -> None:
        """Revoke one: DELETE /admin/v1/users/{user}/tokens/{number}; gone is done."""

    async def backup(self, brokers: Sequence[str], name: str) -> SeenBackup | None:
        """Return a backup: GET /admin/v1/cluster/backups/{name}; None: there is none."""

    async def take_backup(
        self, brokers: Sequence[str], name: str, bytes_a_second: int | None, *, operator_epoch: int
    ) -> None:
        """Take it, or go on with it: POST /admin/v1/cluster/backups/{name}."""

    async def delete_backup(
        self, brokers: Sequence[str], name: str, *, operator_epoch: int
    ) -> None:
        """Delete it: DELETE /admin/v1/cluster/backups/{name}; gone is done."""

    async def shards(self, brokers: Sequence[str]) -> Mapping[int, SeenShard]:
        """Return all shards: GET /admin/v1/cluster. RetryError without ZooKeeper."""

    async def drain(
        self,
        brokers: Sequence[str],
        shard: int,
        *,
        request_id: str,
        move: bool,
        operator_epoch: int,
    ) -> None:
        """Close a shard's topics, and with `move` open them elsewhere.

        POST /admin/v1/shards/{shard}/drain; BlockedError when this request was taken back since.
        """

    async def undrain(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        """Take that back: POST /admin/v1/shards/{shard}/undrain."""

    async def spread(
        self, brokers: Sequence[str], topic: str, to: Collection[int], *, operator_epoch: int
    ) -> None:
        """Give a topic queues on these shards too: POST /admin/v1/topics/{topic}/spread."""

    async def move(
        self, brokers: Sequence[str], topic: str, shard: int, *, operator_epoch: int
    ) -> None:
        """Have a topic leave a shard for others: POST /admin/v1/topics/{topic}/move."""

    async def seal(
        self, brokers: Sequence[str], topic: str, shard: int, *, operator_epoch: int
    ) -> None:
        """Have a topic take no more messages on a shard: POST /admin/v1/topics/{topic}/seal."""
