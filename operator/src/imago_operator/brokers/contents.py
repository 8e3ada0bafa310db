"""Topics, groups and moves over brokers' HTTP: the ContentsPort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from imago_operator.brokers.http import RETRY_S, MissingError
from imago_operator.contents.values import (
    GroupLag,
    IssuedToken,
    SeenBackup,
    SeenGroup,
    SeenGroups,
    SeenShard,
    SeenToken,
    SeenTopic,
    SeenUser,
    TopicQueues,
)
from imago_operator.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from imago_operator.brokers.http import BrokerCalls

PAGE: Final = 1000
PAGES_MAX: Final = 200
GROUPS_A_CALL: Final = 50


class Contents:
    """The brokers of one cluster, as `contents.port.ContentsPort` describes them."""

    def __init__(self, calls: BrokerCalls) -> None:
        self._calls = calls

    async def topics(self, brokers: Sequence[str]) -> Mapping[str, SeenTopic]:
        last = RetryError("no broker has an address", delay_s=RETRY_S)
        for broker in brokers:
            try:
                items = await self._topics(broker)
            except RetryError as error:
                last = error
            else:
                return {item["name"]: topic_of(item) for item in items}
        raise last

    async def _topics(self, broker: str) -> list[Mapping[str, Any]]:
        """Return all pages of one broker."""
        path, query = "/admin/v1/cluster/topics", {"limit": str(PAGE)}
        found: list[Mapping[str, Any]] = []
        for _ in range(PAGES_MAX):
            answer = await self._calls.get(broker, path, query)
            if not answer["zooKeeperConnected"]:
                raise RetryError(f"{broker} has no ZooKeeper", delay_s=RETRY_S)
            found += answer["items"]
            if not answer["next"]:
                return found
            query["next"] = answer["next"]
        raise RetryError(f"{broker}{path}: more than {PAGE * PAGES_MAX}", delay_s=60)

    async def put_topic(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        await self._change("PUT", brokers, _topic(name), body, operator_epoch)

    async def delete_topic(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        await self._delete(brokers, _topic(name), operator_epoch)

    async def groups(self, brokers: Sequence[str], names: Collection[str]) -> SeenGroups:
        wanted = sorted(names)
        found: dict[str, SeenGroup] = {}
        missing: set[str] = set()
        for start in range(0, len(wanted), GROUPS_A_CALL):
            part = "&".join(f"group={quote(n)}" for n in wanted[start : start + GROUPS_A_CALL])
            path = f"/admin/v1/cluster/groups?metaq=true&limit={GROUPS_A_CALL}&{part}"
            answer = await self._calls.get_at_any(brokers, path)
            found |= {item["name"]: group_of(item) for item in answer["items"]}
            missing |= {_shard_of(each) for each in answer["missing"]}
        return SeenGroups(groups=found, missing=tuple(sorted(missing)))

    async def put_group(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        await self._change("PUT", brokers, _group(name), body, operator_epoch)

    async def delete_group(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        await self._delete(brokers, _group(name), operator_epoch)

    async def reset_group(
        self, brokers: Sequence[str], group: str, topic: str, to: str | int, *, operator_epoch: int
    ) -> None:
        body = {"topic": topic, "to": to, "whenEmpty": True}
        await self._change("POST", brokers, f"{_group(group)}/reset", body, operator_epoch)

    async def users(self, brokers: Sequence[str]) -> Mapping[str, SeenUser]:
        path, query = "/admin/v1/users", {"limit": str(PAGE)}
        found: dict[str, SeenUser] = {}
        for _ in range(PAGES_MAX):
            answer = await self._calls.get_at_any(brokers, path, query)
            found |= {item["name"]: user_of(item) for item in answer["items"]}
            if not answer["next"]:
                return found
            query["next"] = answer["next"]
        raise RetryError(f"{path}: more than {PAGE * PAGES_MAX}", delay_s=60)

    async def put_user(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        await self._change("PUT", brokers, _user(name), body, operator_epoch)

    async def delete_user(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        await self._delete(brokers, _user(name), operator_epoch)

    async def make_token(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> IssuedToken:
        path = f"{_user(name)}/tokens"
        said = await self._calls.change_at_any(
            "POST", brokers, path, dict(body), epoch=operator_epoch, once=True
        )
        number, token = str(said["number"]), str(said["token"])
        return IssuedToken(number=number, expires_ms=int(said["expires"]), token=token)

    async def revoke_token(
        self, brokers: Sequence[str], name: str, number: str, *, operator_epoch: int
    ) -> None:
        await self._delete(
            brokers, f"{_user(name)}/tokens/{quote(number, safe='')}", operator_epoch
        )

    async def backup(self, brokers: Sequence[str], name: str) -> SeenBackup | None:
        try:
            return backup_of(await self._calls.get_at_any(brokers, _backup(name)))
        except MissingError:
            return None

    async def take_backup(
        self, brokers: Sequence[str], name: str, bytes_a_second: int | None, *, operator_epoch: int
    ) -> None:
        body = {} if bytes_a_second is None else {"bytesASecond": bytes_a_second}
        await self._change("POST", brokers, _backup(name), body, operator_epoch)

    async def delete_backup(
        self, brokers: Sequence[str], name: str, *, operator_epoch: int
    ) -> None:
        await self._delete(brokers, _backup(name), operator_epoch)

    async def shards(self, brokers: Sequence[str]) -> Mapping[int, SeenShard]:
        answer = await self._calls.get_at_any(brokers, "/admin/v1/cluster")
        if not answer.get("zooKeeperConnected"):
            raise RetryError("the broker that answers has no ZooKeeper", delay_s=RETRY_S)
        return {shard.id: shard for shard in map(shard_of, answer["shards"])}

    async def drain(
        self,
        brokers: Sequence[str],
        shard: int,
        *,
        request_id: str,
        move: bool,
        operator_epoch: int,
    ) -> None:
        body = {"requestId": request_id, "move": move}
        await self._change("POST", brokers, f"{_shard(shard)}/drain", body, operator_epoch)

    async def undrain(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        await self._change("POST", brokers, f"{_shard(shard)}/undrain", {}, operator_epoch)

    async def spread(
        self, brokers: Sequence[str], topic: str, to: Collection[int], *, operator_epoch: int
    ) -> None:
        body = {"to": sorted(to)}
        await self._change("POST", brokers, f"{_topic(topic)}/spread", body, operator_epoch)

    async def move(
        self, brokers: Sequence[str], topic: str, shard: int, *, operator_epoch: int
    ) -> None:
        body = {"from": shard, "to": "any"}
        await self._change("POST", brokers, f"{_topic(topic)}/move", body, operator_epoch)

    async def seal(
        self, brokers: Sequence[str], topic: str, shard: int, *, operator_epoch: int
    ) -> None:
        body = {"from": shard}
        await self._change("POST", brokers, f"{_topic(topic)}/seal", body, operator_epoch)

    async def _change(
        self,
        method: str,
        brokers: Sequence[str],
        path: str,
        body: Mapping[str, Any],
        epoch: int,
    ) -> None:
        await self._calls.change_at_any(method, brokers, path, dict(body), epoch=epoch)

    async def _delete(self, brokers: Sequence[str], path: str, epoch: int) -> None:
        try:
            await self._calls.change_at_any("DELETE", brokers, path, None, epoch=epoch)
        except MissingError:
            return


def _shard_of(missing: str | Mapping[str, Any]) -> str:
    """Return a missing shard's name; older brokers say no more."""
    return missing if isinstance(missing, str) else str(missing["shard"])


def topic_of(said: Mapping[str, Any]) -> SeenTopic:
    """Return one item of GET /admin/v1/cluster/topics."""
    return SeenTopic(
        name=said["name"],
        order=bool(said["order"]),
        dialects=said["dialects"],
        attributes=dict(said["attributes"]),
        shards={
            int(one["id"]): TopicQueues(
                int(one["writeQueues"]), int(one["readQueues"]), int(one["perm"]), one["online"]
            )
            for one in said["shards"]
        },
    )


def backup_of(said: Mapping[str, Any]) -> SeenBackup:
    """Return what GET /admin/v1/cluster/backups/{name} says."""
    shards = said["shards"].values()
    return SeenBackup(
        state=said["state"],
        started_ms=int(said.get("startedAt", 0)),
        until_ms=min((int(one.get("cutAt", 0)) for one in shards), default=0),
        size=int(said.get("size", 0)),
        damaged=sum(int(one.get("damaged", 0)) for one in shards),
        lacks=next((str(one["lacks"]) for one in shards if one.get("lacks")), ""),
        done=sum(int(one["bytesDone"]) for one in shards),
        total=sum(int(one["bytes"]) for one in shards),
        error=next((str(one["error"]) for one in shards if one["error"]), ""),
    )


def group_of(said: Mapping[str, Any]) -> SeenGroup:
    """Return one item of GET /admin/v1/cluster/groups."""
    metaq = said.get("metaq") or {}
    return SeenGroup(
        name=said["name"],
        settings=said["settings"],
        members=tuple(said["members"]),
        lags=_lags(said["topics"]),
        metaq_members=tuple(metaq.get("members") or ()),
        metaq_lags=_lags(metaq.get("topics") or {}),
    )


def _lags(said: Mapping[str, Any]) -> dict[str, GroupLag]:
    return {name: GroupLag(int(one["lag"]), one["oldest"]) for name, one in said.items()}


def shard_of(said: Mapping[str, Any]) -> SeenShard:
    """Return one shard of GET /admin/v1/cluster."""
    drain = said.get("drain") or {}
    return SeenShard(
        id=int(said["id"]),
        master=said["master"] is not None,
        cordoned=bool(said["cordoned"]),
        draining=bool(said["draining"]),
        drained=bool(said["drained"]),
        to_move=drain.get("topicsToMove"),
        unread=int(drain.get("messages") or 0) + int(drain.get("delayedMessages") or 0),
        blocked=str(drain.get("blocked") or ""),
    )


def user_of(said: Mapping[str, Any]) -> SeenUser:
    """Return one item of GET /admin/v1/users; of anonymous there are rules alone."""
    return SeenUser(
        name=said["name"],
        is_super=bool(said.get("super")),
        enabled=bool(said.get("enabled", True)),
        signs=bool(said.get("signs")),
        has_password=bool(said.get("password")),
        rules=tuple(said["rules"]),
        quotas=dict(said.get("quotas") or {}),
        tokens=tuple(
            SeenToken(number=one["number"], expires_ms=int(one["expires"]), note=one["note"])
            for one in said.get("tokens") or ()
        ),
    )


def _user(name: str) -> str:
    return f"/admin/v1/users/{quote(name, safe='')}"


def _topic(name: str) -> str:
    return f"/admin/v1/topics/{quote(name, safe='')}"


def _group(name: str) -> str:
    return f"/admin/v1/groups/{quote(name, safe='')}"


def _backup(name: str) -> str:
    return f"/admin/v1/cluster/backups/{quote(name, safe='')}"


def _shard(number: int) -> str:
    return f"/admin/v1/shards/{number}"
