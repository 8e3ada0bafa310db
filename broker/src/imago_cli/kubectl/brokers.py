"""Brokers' administration, asked from inside of their pods, where the token is."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from imago_cli.clusters.missing import PAGE_LIMIT, all_pages
from imago_cli.exits import CommandError
from imago_cli.kubectl.tool import Kubectl, KubectlError
from imago_cli.output import say
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

CONTAINER: Final = "broker"
AT_ONCE: Final = 8
CALL: Final = """\
import sys, urllib.error, urllib.request as http
method, path, body = sys.argv[1:]
call = http.Request("http://127.0.0.1:8080" + path, body.encode() or None, method=method)
call.add_header("Content-Type", "application/json")
call.add_header("Authorization", "Bearer " + open("/etc/imago/token/token").read().strip())
try:
    answer = http.build_opener(http.ProxyHandler({})).open(call, timeout=50)
except urllib.error.HTTPError as refused:
    answer = refused
print(answer.status, answer.read().decode())
"""
"""Run by the Python of the broker's own image: prints the status code and what was answered."""
READ: Final = """\
import sys, urllib.error, urllib.request as http
plain = http.build_opener(http.ProxyHandler({}))
token = open("/etc/imago/token/token").read().strip()
plain.addheaders = [("Authorization", "Bearer " + token)]
for path in sys.argv[1:]:
    try:
        answer = plain.open("http://127.0.0.1:8080" + path, timeout=20)
    except urllib.error.HTTPError as refused:
        answer = refused
    print(answer.status, answer.read().decode().replace("\\n", " "))
"""
"""The same for questions, one line each."""
EXPLAIN: Final = "kubectl imago explain {}"
_OLDER: Final = "is it of another version? See its log, and that plugin and brokers are of one"
RIGHTS: Final = "needs `create` on `pods/exec` in the cluster's namespace; see docs/operator.md"


class ClusterBrokers:
    """The brokers of one cluster."""

    def __init__(self, kube: Kubectl, cluster: str) -> None:
        self._kube, self._cluster = kube, cluster
        labels = f"{names.CLUSTER_LABEL}={cluster},{names.COMPONENT_LABEL}={names.BROKER}"
        self.pods: list[dict[str, Any]] = kube.all_of("pods", labels=labels)

    def ask(self, pod: str, path: str, body: object = None) -> dict[str, Any]:
        """Call one path of one broker, with POST where there is a body."""
        method, data = ("GET", "") if body is None else ("POST", json.dumps(body))
        command = ("python3", "-c", CALL, method, path, data)
        try:
            said = self._kube.execute(pod, CONTAINER, command)
        except KubectlError as error:
            raise _unreachable(pod, error) from error
        return _answer(pod, said)

    def ask_all(self, pod: str, paths: Sequence[str]) -> dict[str, tuple[int, Any]]:
        """Return status and answer of several questions to one broker."""
        try:
            said = self._kube.execute(pod, CONTAINER, ("python3", "-c", READ, *paths))
        except KubectlError as error:
            raise _unreachable(pod, error) from error
        lines = said.splitlines()
        if len(lines) != len(paths):
            raise CommandError(
                f"{pod}: its broker answers {len(lines)} of {len(paths)} questions", cure=_OLDER
            )
        return {path: _line(pod, line) for path, line in zip(paths, lines, strict=True)}

    def cluster(self) -> dict[str, Any]:
        """Return what the first broker that answers says of the whole cluster."""
        return self._ask_any("/admin/v1/cluster")

    def groups(self, *named: str) -> Iterator[dict[str, Any]]:
        """Yield groups as all shards together have them, MetaQ's too; CommandError: not all know.

        Without ZooKeeper those of MetaQ are left out, which is said.
        """
        which = "".join(f"&group={quote(name, safe='')}" for name in named)
        metaq, start = "&metaq=true", ""
        while start is not None:
            path = (
                f"/admin/v1/cluster/groups?limit={PAGE_LIMIT}&next={quote(start, safe='')}{which}"
            )
            try:
                page = self._ask_any(f"{path}{metaq}")
            except UnavailableError as error:
                if not metaq:
                    raise
                say(f"what MetaQ's consumers have read is not shown: {error.message}")
                metaq = ""
                continue
            if page["missing"]:
                silent = "; ".join(map(_said_of, page["missing"]))
                raise CommandError(f"not answered by {silent}", cure=EXPLAIN.format(self._cluster))
            yield from page["items"]
            start = page["next"]

    def users(self) -> list[dict[str, Any]]:
        """Return all users, as the first broker that answers has them."""
        return all_pages(self._ask_any, "/admin/v1/users")[0]

    def clients(
        self, chosen: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return who is connected to any broker, and shards and members that did not answer."""
        return all_pages(self._ask_any, "/admin/v1/cluster/clients", chosen)

    def _ask_any(self, path: str) -> dict[str, Any]:
        last: CommandError | None = None
        for pod in sorted(self.pods, key=lambda one: not is_ready(one)):
            try:
                return self.ask(name_of(pod), path)
            except CommandError as error:
                last = error
        raise last or CommandError(
            f"{self._cluster} has no broker pods here", cure="kubectl imago status -A"
        )

    def masters(self) -> dict[int, str]:
        """Return a pod of each shard to read from: where it can be told, the master's."""
        chosen: dict[int, str] = {}
        leading = [pod for pod in self.pods if label_of(pod, names.ROLE_LABEL) == "master"]
        for pod in (*leading, *filter(is_ready, self.pods), *self.pods):
            chosen.setdefault(shard_of(pod), name_of(pod))
        return dict(sorted(chosen.items()))

    def of_shard(self, shard: int) -> list[str]:
        """Return the pods of a shard, those that are ready first."""
        mine = [pod for pod in self.pods if shard_of(pod) == shard]
        return [name_of(pod) for pod in sorted(mine, key=lambda pod: not is_ready(pod))]

    def from_each_shard(self, path: str) -> dict[int, list[dict[str, Any]]]:
        """Return all items of a list, by shard; shards that do not answer raise CommandError."""
        return self._each(lambda pod: all_pages(partial(self.ask, pod), path)[0])

    def show_on_each(self, path: str, name: str) -> dict[int, dict[str, Any]]:
        """Return one thing as each shard has it; shards that do not have it are left out."""

        def shown(pod: str) -> list[dict[str, Any]]:
            try:
                return [self.ask(pod, f"{path}/{quote(name, safe='')}")]
            except NotThereError:
                return []

        return {shard: found[0] for shard, found in self._each(shown).items() if found}

    def _each(self, read: Callable[[str], list[dict[str, Any]]]) -> dict[int, list[dict[str, Any]]]:
        masters = self.masters()
        if not masters:
            raise CommandError(
                f"{self._cluster} has no broker pods", cure="kubectl imago status -A"
            )
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return dict(zip(masters, pool.map(read, masters.values()), strict=True))


class NotThereError(CommandError):
    """The broker does not have what was asked for."""


class UnavailableError(CommandError):
    """The broker cannot know it now: it has no ZooKeeper."""


KINDS: Final = {404: NotThereError, 503: UnavailableError}


def name_of(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def label_of(pod: Mapping[str, Any], label: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(label, ""))


def shard_of(pod: Mapping[str, Any]) -> int:
    """Return the shard of a pod, -1 where it has none."""
    text = label_of(pod, names.SHARD_LABEL)
    return int(text) if text.isdecimal() else -1


def is_ready(pod: Mapping[str, Any]) -> bool:
    listed: Iterable[Mapping[str, Any]] = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in listed)


def _answer(pod: str, said: str) -> dict[str, Any]:
    status, value = _line(pod, said)
    if status >= 400:
        kind = KINDS.get(status, CommandError)
        raise kind(f"{pod}: {value.get('message', said)}", cure=str(value.get("cure", "")))
    return value


def _line(pod: str, said: str) -> tuple[int, dict[str, Any]]:
    code, _, text = said.partition(" ")
    try:
        status, value = int(code), json.loads(text)
    except ValueError:
        status, value = 0, None
    if not isinstance(value, dict):
        raise CommandError(f"{pod}: its broker answers no JSON object: {said[:200]!r}", cure=_OLDER)
    return status, value


def _unreachable(pod: str, error: KubectlError) -> CommandError:
    """Say in a sentence why a broker was not asked; a trace's last line says it best."""
    if "(Forbidden)" in error.message:
        return CommandError(f"{pod}: {error.message}", cure=RIGHTS)
    lines: Sequence[str] = [
        line
        for line in error.message.splitlines()
        if line.strip() and not line.startswith("command terminated")
    ]
    why = lines[-1] if lines else error.message
    cure = error.cure or f"kubectl describe pod {pod}; kubectl logs {pod} -c {CONTAINER}"
    return CommandError(f"{pod}: {why}", cure=cure)


def _said_of(missing: str | Mapping[str, Any]) -> str:
    """Return a missing shard with the reason; older brokers tell its name alone."""
    if isinstance(missing, str):
        return missing
    return f"{missing['shard']} ({missing['why']})"
