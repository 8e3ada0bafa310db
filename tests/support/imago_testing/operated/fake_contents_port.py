"""Brokers' topics, groups and moves in memory: a ContentsPort that does what brokers do."""

# ruff: noqa: ARG002  a port has arguments that a fake needs not

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

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
from imago_operator.errors import (
    BlockedError,
    InvalidError,
    OperatorError,
    RetryError,
    TakenBackError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

GROUP_DEFAULTS = {
    "consume_enable": True,
    "consume_broadcast_enable": True,
    "consume_message_orderly": False,
    "retry_queues": 1,
    "retry_max_times": 16,
}


@dataclass
class FakeContentsPort:
    """A cluster of `shard_numbers`; `trouble` raises what the next call is to fail with."""

    shard_numbers: tuple[int, ...] = (0, 1)
    topics_by_name: dict[str, SeenTopic] = field(default_factory=dict)
    groups_by_name: dict[str, SeenGroup] = field(default_factory=dict)
    users_by_name: dict[str, SeenUser] = field(default_factory=dict)
    passwords: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By user: those that count, the newest first."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of tokens."""
    now_ms: Callable[[], int] = lambda: 0
    """By whose clock tokens end."""
    backups: dict[str, SeenBackup] = field(default_factory=dict)
    cordoned: set[int] = field(default_factory=set)
    draining: dict[int, tuple[str, bool]] = field(default_factory=dict)
    taken_back: set[str] = field(default_factory=set)
    missing: tuple[str, ...] = ()
    silent: bool = False
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    """Changes that were asked for, in order."""
    trouble: Callable[[str], OperatorError | None] = lambda _: None
    reads: int = 0
    epochs: set[int] = field(default_factory=set)

    def _changes(self, what: str, *said: object, epoch: int) -> None:
        if self.silent:
            raise RetryError("silence", delay_s=1)
        self.epochs.add(epoch)
        self.calls.append((what, *said))
        if error := self.trouble(what):
            raise error

    def _read(self) -> None:
        self.reads += 1
        if self.silent:
            raise RetryError("silence", delay_s=1)

    def free(self) -> list[int]:
        return [n for n in self.shard_numbers if n not in self.cordoned]

    async def topics(self, brokers: Sequence[str]) -> Mapping[str, SeenTopic]:
        self._read()
        return dict(self.topics_by_name)

    async def put_topic(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        self._changes("put_topic", name, dict(body), epoch=operator_epoch)
        old = self.topics_by_name.get(name)
        attributes = dict(old.attributes) if old else {}
        attributes |= body.get("attributes", {})
        if "acknowledgement" in body:
            attributes["acknowledgement"] = body["acknowledgement"]
        if "retentionMs" in body:
            attributes["retention.ms"] = str(body["retentionMs"])
        dialects = body.get("dialects", old.dialects if old else "metaq,rocketmq")
        shards = {
            n: self._queues(old, n, body.get("queues"))
            for n in self._placed(old, body.get("shards"))
        }
        self.topics_by_name[name] = SeenTopic(
            name=name,
            shards=shards,
            order=body.get("order", old.order if old else False),
            dialects=dialects,
            attributes=attributes,
        )

    def _placed(self, old: SeenTopic | None, asked: object) -> set[int]:
        has = set(old.shards) if old else set()
        if asked is None:
            return has or set(self.free())
        if isinstance(asked, int):
            takes = len(old.open_on) if old else 0
            more = [n for n in self.free() if n not in has]
            if asked - takes > len(more):
                raise InvalidError("not so many shards")
            return has | set(more[: max(0, asked - takes)])
        assert isinstance(asked, list)
        if unknown := set(asked) - has - set(self.free()):
            raise InvalidError(f"{unknown} do not take new topics")
        return set(asked)

    def _queues(self, old: SeenTopic | None, shard: int, asked: int | None) -> TopicQueues:
        had = old.shards.get(shard) if old else None
        if had is None:
            return TopicQueues(asked or 8, asked or 8)
        if asked is None:
            return had
        if not had.open:
            return replace(had, read=max(had.read, asked))
        return TopicQueues(asked, asked)

    async def delete_topic(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        self._changes("delete_topic", name, epoch=operator_epoch)
        self.topics_by_name.pop(name, None)

    async def groups(self, brokers: Sequence[str], names: Collection[str]) -> SeenGroups:
        self._read()
        found = {n: g for n, g in self.groups_by_name.items() if n in names}
        return SeenGroups(groups=found, missing=self.missing)

    async def put_group(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        self._changes("put_group", name, dict(body), epoch=operator_epoch)
        old = self.groups_by_name.get(name) or SeenGroup(name=name, settings=None)
        settings = {**GROUP_DEFAULTS, **(old.settings or {}), **body}
        self.groups_by_name[name] = replace(old, settings=settings)

    async def delete_group(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        self._changes("delete_group", name, epoch=operator_epoch)
        self.groups_by_name.pop(name, None)

    async def reset_group(
        self, brokers: Sequence[str], group: str, topic: str, to: str | int, *, operator_epoch: int
    ) -> None:
        self._changes("reset_group", group, topic, to, epoch=operator_epoch)
        found = self.groups_by_name.get(group) or SeenGroup(name=group, settings=None)
        if found.members:
            raise BlockedError("active", until="consumers stop")
        if topic not in self.topics_by_name:
            raise InvalidError(f"no topic {topic}")
        lags = {**found.lags, topic: GroupLag(0)}
        self.groups_by_name[group] = replace(found, lags=lags)

    async def users(self, brokers: Sequence[str]) -> Mapping[str, SeenUser]:
        self._read()
        return dict(self.users_by_name)

    async def put_user(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> None:
        self._changes("put_user", name, dict(body), epoch=operator_epoch)
        old = self.users_by_name.get(name) or SeenUser(name=name)
        if "password" in body:
            self._take_password(name, body["password"], bool(body.get("formerSeconds")))
        signs = bool(self.passwords.get(name))
        self.users_by_name[name] = replace(
            old,
            is_super=body.get("super", old.is_super),
            enabled=body.get("enabled", old.enabled),
            rules=tuple(body.get("rules", old.rules)),
            quotas=dict(body.get("quotas", old.quotas)),
            signs=signs,
            has_password=signs,
        )

    def _take_password(self, name: str, password: str | None, former_counts: bool) -> None:
        before = self.passwords.get(name, ())
        if password is None:
            self.passwords.pop(name, None)
        elif before[:1] != (password,):
            self.passwords[name] = (password, *(before[:1] if former_counts else ()))

    async def delete_user(self, brokers: Sequence[str], name: str, *, operator_epoch: int) -> None:
        self._changes("delete_user", name, epoch=operator_epoch)
        self.users_by_name.pop(name, None)
        self.passwords.pop(name, None)

    async def make_token(
        self, brokers: Sequence[str], name: str, body: Mapping[str, Any], *, operator_epoch: int
    ) -> IssuedToken:
        self._changes("make_token", name, dict(body), epoch=operator_epoch)
        user, now_ms = self.users_by_name[name], self.now_ms()
        number, expires_ms = f"n{next(self.numbers)}", now_ms + 1000 * body["expiresSeconds"]
        former_ms = now_ms + 1000 * body["formerSeconds"] if "formerSeconds" in body else 1 << 60
        left = [
            replace(one, expires_ms=min(one.expires_ms, former_ms))
            if one.number == body["former"]
            else one
            for one in user.tokens
            if one.number == body["former"] or one.note != body["note"]
        ]
        made = SeenToken(number=number, expires_ms=expires_ms, note=body["note"])
        self.users_by_name[name] = replace(user, tokens=(*left, made))
        token = f"imt.{name}.{number}.secret-of-{number}"
        return IssuedToken(number=number, expires_ms=expires_ms, token=token)

    async def revoke_token(
        self, brokers: Sequence[str], name: str, number: str, *, operator_epoch: int
    ) -> None:
        self._changes("revoke_token", name, number, epoch=operator_epoch)
        user = self.users_by_name[name]
        left = tuple(one for one in user.tokens if one.number != number)
        self.users_by_name[name] = replace(user, tokens=left)

    async def backup(self, brokers: Sequence[str], name: str) -> SeenBackup | None:
        self._read()
        if error := self.trouble("backup"):
            raise error
        return self.backups.get(name)

    async def take_backup(
        self, brokers: Sequence[str], name: str, bytes_a_second: int | None, *, operator_epoch: int
    ) -> None:
        self._changes("take_backup", name, bytes_a_second, epoch=operator_epoch)
        self.backups[name] = SeenBackup(state="running", done=1, total=4)

    async def delete_backup(
        self, brokers: Sequence[str], name: str, *, operator_epoch: int
    ) -> None:
        self._changes("delete_backup", name, epoch=operator_epoch)
        self.backups.pop(name, None)

    async def shards(self, brokers: Sequence[str]) -> Mapping[int, SeenShard]:
        self._read()
        return {n: self._shard(n) for n in self.shard_numbers}

    def _shard(self, number: int) -> SeenShard:
        left = sum(number in topic.open_on for topic in self.topics_by_name.values())
        drained = number in self.draining
        return SeenShard(
            id=number,
            cordoned=number in self.cordoned,
            draining=drained,
            to_move=left if drained else None,
        )

    async def drain(
        self,
        brokers: Sequence[str],
        shard: int,
        *,
        request_id: str,
        move: bool,
        operator_epoch: int,
    ) -> None:
        self._changes("drain", shard, move, epoch=operator_epoch)
        if request_id in self.taken_back:
            raise TakenBackError("taken back since", until="another request")
        self.cordoned.add(shard)
        self.draining.setdefault(shard, (request_id, move))

    def look_like_brokers(self) -> None:
        """Do one step of the drains, as masters do by themselves: one topic of each shard."""
        for shard, (_, move) in self.draining.items():
            mine = [n for n, t in sorted(self.topics_by_name.items()) if shard in t.open_on]
            for name in mine[:1]:
                self._leave(name, shard, move=move)

    async def undrain(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        self._changes("undrain", shard, epoch=operator_epoch)
        self.cordoned.discard(shard)
        if shard in self.draining:
            self.taken_back.add(self.draining.pop(shard)[0])

    async def spread(
        self, brokers: Sequence[str], topic: str, to: Collection[int], *, operator_epoch: int
    ) -> None:
        self._changes("spread", topic, tuple(to), epoch=operator_epoch)
        self._open(topic, to)

    def _open(self, name: str, to: Collection[int]) -> None:
        topic = self.topics_by_name[name]
        each = max([q.number for q in topic.shards.values()])
        shards = {**topic.shards, **{n: TopicQueues(each, each) for n in to}}
        self.topics_by_name[name] = replace(topic, shards=shards)

    def _leave(self, name: str, shard: int, *, move: bool) -> None:
        topic = self.topics_by_name[name]
        free = [n for n in self.free() if n != shard]
        if move:
            if not free:
                raise BlockedError("no other shard takes topics", until="one does")
            self._open(name, [n for n in free if n not in topic.open_on][:1])
            topic = self.topics_by_name[name]
        had = topic.shards[shard]
        closed = {**topic.shards, shard: TopicQueues(0, had.number, 4)}
        self.topics_by_name[name] = replace(topic, shards=closed)

    async def move(
        self, brokers: Sequence[str], topic: str, shard: int, *, operator_epoch: int
    ) -> None:
        self._changes("move", topic, shard, epoch=operator_epoch)
        self._leave(topic, shard, move=True)

    async def seal(
        self, brokers: Sequence[str], topic: str, shard: int, *, operator_epoch: int
    ) -> None:
        self._changes("seal", topic, shard, epoch=operator_epoch)
        self._leave(topic, shard, move=False)
