"""An API server of Kubernetes in memory, as far as the operator needs one, with faults on demand.

It keeps versions, uids, generations and the fields that each manager has applied; lists come in
pages. Lists within objects are atomic, but the account of who says what names their items where a
server's does. Nothing happens by itself: whoever plays the controllers
subscribes to changes.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from imago_operator.kube.failures import failure
from imago_operator.kube.http import APPLY, JSON
from imago_operator.kube.objects import STATUS_MANAGER
from imago_operator.kube.resources import RESOURCES
from imago_operator.model import names
from imago_testing.kubernetes.copying import copied

Manifest = dict[str, Any]
Place = tuple[str, str, str]
"""Plural, namespace and name."""
STALE_BY: Final = 3
APPLIERS: Final = frozenset({names.MANAGER, STATUS_MANAGER})
READS: Final = frozenset({"get", "list"})
LIST_KEYS: Final = {
    "containers": ("name",),
    "env": ("name",),
    "initContainers": ("name",),
    "ports": ("port", "containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists whose items have keys, and which."""
PATH: Final = re.compile(
    r"/apis?/(?P<version>(?:[a-z0-9.]+/)?v[0-9a-z]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>status))?"
)
KINDS: Final = {resource.plural: resource for resource in RESOURCES.values()}
OURS: Final = frozenset(r.plural for r in RESOURCES.values() if r.api_version.startswith("imago."))


@dataclass(frozen=True, slots=True)
class Call:
    """A call that came in."""

    number: int
    verb: str
    plural: str
    name: str
    sub: str

    @property
    def changes(self) -> bool:
        return self.verb not in READS


class Refused(Exception):  # noqa: N818  an answer, not an error of the fake
    """An answer of 400 or above."""

    def __init__(self, status: int, reason: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.headers = status, reason, headers


def nothing(_: Call) -> None:
    """Inject nothing."""


@dataclass
class FakeApiServer:
    """The server. `call` is what `imago_operator.kube.http.ApiServer` has."""

    objects: dict[Place, Manifest] = field(default_factory=dict)
    version: int = 100
    before: Callable[[Call], None] = nothing
    """Raises Refused, or anything else, in place of the answer; nothing is done then."""
    after: Callable[[Call], None] = nothing
    """The same, once it is done."""
    stale: Callable[[Call], bool] = lambda _: False
    """Whether a list is to be answered from what was there a few changes ago."""
    calls: list[Call] = field(default_factory=list)
    changed: list[Callable[[str, Manifest], None]] = field(default_factory=list)
    """Told ADDED, MODIFIED or DELETED and the object, of what came in by `call`."""
    _owned: dict[Place, dict[str, set[tuple[str, ...]]]] = field(default_factory=dict)
    _past: list[tuple[int, dict[Place, Manifest]]] = field(default_factory=list)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.changes]

    async def call(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = JSON,
        accept: str = JSON,  # noqa: ARG002  the whole object is more than was asked for
    ) -> Any:
        """Answer as ApiServer.call does."""
        try:
            status, answer = self.answer(verb, method, path, query or {}, body, content)
        except Refused as refused:
            said = {"reason": refused.reason, "message": str(refused)}
            raw = json.dumps(said).encode()
            raise failure(verb, what, refused.status, raw, refused.headers) from refused
        assert status < 300
        return answer

    def answer(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content: str = JSON,
    ) -> tuple[int, Any]:
        """Answer a request; Refused for what is not done."""
        found = PATH.fullmatch(path)
        if found is None or found["plural"] not in KINDS:
            raise Refused(404, "NotFound", f"{path}: no such resource")
        name = found["name"] or (body or {}).get("metadata", {}).get("name", "")
        call = Call(len(self.calls), verb, found["plural"], name, found["sub"] or "")
        self.calls.append(call)
        self.before(call)
        place = found["plural"], found["namespace"] or "", found["name"] or ""
        body = copied(body)
        answer = getattr(self, f"_{verb}")(call, place, query, body, content)
        self.after(call)
        return (201 if method == "POST" else 200), copied(answer)

    # ---- for tests and those who play the controllers --------------------------------------

    def put(self, manifest: Manifest, by: str = "somebody") -> Manifest:
        """Put an object there, without telling anybody."""
        resource = RESOURCES[manifest["kind"]]
        metadata = manifest["metadata"]
        place = resource.plural, metadata.get("namespace", ""), metadata["name"]
        new = copied(manifest)
        self._take_over(place, by, new)
        return self._store(place, new)

    def _take_over(self, place: Place, by: str, new: Manifest) -> None:
        """Have whoever changes a field be the one who says it."""
        old = self.objects.get(place, {})
        changed = {path for path in _paths(new) if _at(old, path) != _at(new, path)}
        gone = {path for path in _paths(old) if _at(new, path) is None}
        for held in self._owned.setdefault(place, {}).values():
            held.difference_update(changed | gone)
        self._owned[place].setdefault(by, set()).update(changed)

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self.objects.get((RESOURCES[kind].plural, namespace, name))

    def all(self, kind: str) -> list[Manifest]:
        plural = RESOURCES[kind].plural
        return [item for place, item in sorted(self.objects.items()) if place[0] == plural]

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """Take an object away, without telling anybody."""
        self._remember()
        self.objects.pop((RESOURCES[kind].plural, namespace, name), None)

    # ---- verbs -----------------------------------------------------------------------------

    def _get(self, _: Call, place: Place, *__: Any) -> Manifest:
        if place not in self.objects:
            raise Refused(404, "NotFound", f"{place[0]} {place[2]} not found")
        return self.objects[place]

    def _list(self, call: Call, place: Place, query: Mapping[str, str], *_: Any) -> Manifest:
        version, objects = self.version, self.objects
        if self.stale(call) and len(self._past) > STALE_BY:
            version, objects = self._past[-STALE_BY]
        found = [
            item
            for (plural, namespace, _name), item in sorted(objects.items())
            if plural == place[0]
            and place[1] in ("", namespace)
            and _matches(item, query.get("labelSelector", ""))
        ]
        start = int(query.get("continue", "0"))
        size = int(query.get("limit", "0")) or len(found) + 1
        more = start + size < len(found)
        metadata = {"resourceVersion": str(version), "continue": str(start + size) if more else ""}
        return {"kind": "List", "metadata": metadata, "items": found[start : start + size]}

    def _create(
        self, _: Call, place: Place, _query: Mapping[str, str], body: Manifest, _content: str
    ) -> Manifest:
        place = (place[0], place[1], body["metadata"]["name"])
        if place in self.objects:
            raise Refused(409, "AlreadyExists", f"{place[0]} {place[2]} already exists")
        return self._told("ADDED", self._store(place, body))

    def _update(
        self, call: Call, place: Place, _query: Mapping[str, str], body: Manifest, _content: str
    ) -> Manifest:
        old = self._get(call, place)
        if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"{place[2]}: the object has been modified")
        return self._told("MODIFIED", self._store(place, body))

    def _patch(
        self, call: Call, place: Place, query: Mapping[str, str], body: Manifest, content: str
    ) -> Manifest:
        old = self.objects.get(place)
        self._require_uid(place, old, body.get("metadata", {}).pop("uid", None))
        version = body.get("metadata", {}).pop("resourceVersion", None)
        if version and old and version != old["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"{place[2]}: the object has been modified")
        if content == APPLY:
            return self._applied(call, place, query["fieldManager"], body, old)
        new = merged(self._get(call, place), body)
        if not call.sub:
            self._take_over(place, f"{query['fieldManager']} by patch", new)
        return self._told("MODIFIED", self._store(place, new))

    def _delete(
        self, call: Call, place: Place, _query: Mapping[str, str], body: Manifest, _content: str
    ) -> Manifest:
        old = self._get(call, place)
        self._require_uid(place, old, (body or {}).get("preconditions", {}).get("uid"))
        self._remember()
        del self.objects[place]
        self._owned.pop(place, None)
        self.version += 1
        gone = {**old, "orphaned": (body or {}).get("propagationPolicy") == "Orphan"}
        return self._told("DELETED", gone)

    def _require_uid(self, place: Place, old: Manifest | None, uid: str | None) -> None:
        if uid is not None and (old is None or old["metadata"]["uid"] != uid):
            if old is None:
                raise Refused(404, "NotFound", f"{place[2]} not found")
            raise Refused(409, "Conflict", f"{place[2]}: uid {uid} is not the one that is there")

    def _applied(
        self, call: Call, place: Place, manager: str, body: Manifest, old: Manifest | None
    ) -> Manifest:
        if old is None and call.sub:
            raise Refused(404, "NotFound", f"{place[2]} not found")
        said = {"status": body.get("status", {})} if call.sub else dict(body)
        if not call.sub:
            said.pop("status", None)
        paths = set(_paths(said))
        owned = self._owned.setdefault(place, {})
        others = set().union(*(held for name, held in owned.items() if name != manager))
        new = copied(old) if old else {}
        for gone in owned.get(manager, set()) - paths - others:
            _remove(new, gone)
        owned[manager] = paths
        new = merged(new, said)
        taken = {path for path in paths if _at(old or {}, path) != _at(new, path)}
        for name, held in owned.items():
            if name != manager:
                held.difference_update(taken)
        if old is not None and _content(new) == _content(old):
            if old["metadata"].get("managedFields") != self._managed(place, new):
                return self._store(place, new)
            return old
        return self._told("ADDED" if old is None else "MODIFIED", self._store(place, new))

    # ---- the store -------------------------------------------------------------------------

    def _store(self, place: Place, new: Manifest) -> Manifest:
        self._remember()
        self.version += 1
        old = self.objects.get(place)
        metadata = new.setdefault("metadata", {})
        metadata["name"], metadata["resourceVersion"] = place[2], str(self.version)
        if place[1]:
            metadata["namespace"] = place[1]
        made = old["metadata"] if old else {"uid": f"{place[0]}-{next(self._ids)}"}
        metadata["uid"] = made["uid"]
        metadata.setdefault("creationTimestamp", "2026-01-02T03:04:05Z")
        metadata["managedFields"] = self._managed(place, new)
        if place[0] in OURS:
            same = old is not None and old.get("spec") == new.get("spec")
            metadata["generation"] = int(made.get("generation", 0)) + (0 if same else 1)
        new["apiVersion"], new["kind"] = KINDS[place[0]].api_version, KINDS[place[0]].kind
        self.objects[place] = new
        return new

    def _managed(self, place: Place, held: Manifest) -> list[Manifest]:
        """Return the account of who says what of an object, as a server shows it."""
        found = []
        for manager, paths in sorted(self._owned.get(place, {}).items()):
            fields: Manifest = {}
            for path in sorted(paths):
                node = fields
                for key in path:
                    node = node.setdefault(f"f:{key}", {})
                node |= _items(path[-1], _at(held, path)) if path else {}
            operation = "Apply" if manager in APPLIERS else "Update"
            entry: Manifest = {"manager": manager, "operation": operation, "fieldsV1": fields}
            if manager != names.MANAGER and operation == "Apply":
                entry["subresource"] = "status"
            found += [entry] if paths else []
        return found

    def _remember(self) -> None:
        self._past.append((self.version, dict(self.objects)))
        del self._past[:-10]

    def _told(self, what: str, manifest: Manifest) -> Manifest:
        for listener in self.changed:
            listener(what, manifest)
        return manifest


def _matches(item: Manifest, selector: str) -> bool:
    labels = item["metadata"].get("labels") or {}
    for requirement in filter(None, selector.split(",")):
        key, equals, value = requirement.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def merged(base: Manifest, over: Mapping[str, Any]) -> Manifest:
    """Return a merge patch's result: maps by key, null removes, everything else is replaced."""
    new = copied(base)
    _merge(new, copied(over))
    return new


def _merge(base: Manifest, over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            _merge(base[key], value)
        else:
            base[key] = value


def _paths(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value:
        return [at]
    return [path for key, part in value.items() for path in _paths(part, (*at, key))]


def _items(name: str, value: Any) -> Manifest:
    """Return the account of a list whose items have keys; of any other it is empty."""
    if name not in LIST_KEYS or not isinstance(value, list):
        return {}
    found: Manifest = {}
    for item in value:
        key = {one: item[one] for one in LIST_KEYS[name] if one in item}
        found[f"k:{json.dumps(key)}"] = {".": {}} | _fields(item)
    return found


def _fields(value: Mapping[str, Any]) -> Manifest:
    return {
        f"f:{key}": _fields(part) if isinstance(part, Mapping) else _items(key, part)
        for key, part in value.items()
    }


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _remove(value: Manifest, path: tuple[str, ...]) -> None:
    """Take a field away, and what is left empty by it."""
    head, *rest = path
    if rest and isinstance(value.get(head), dict):
        _remove(value[head], tuple(rest))
    if not rest or value.get(head) == {}:
        value.pop(head, None)


def _content(manifest: Manifest) -> Manifest:
    varying = ("resourceVersion", "generation", "uid", "creationTimestamp", "managedFields")
    metadata = {k: v for k, v in manifest["metadata"].items() if k not in varying}
    return {**manifest, "metadata": metadata}
