"""The door to the API server, over HTTP: answers of every sort, and none."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.kube.credentials import Credentials, CredentialsError, find, from_file, of_pod
from imago_operator.kube.http import ApiServer
from imago_operator.kube.objects import RESTORED_S, Kubernetes
from imago_testing.kubernetes.fake_api_server import Call, FakeApiServer, Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LIMITS = aiohttp.ClientTimeout(total=3)
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@asynccontextmanager
async def served(handler: Handler, **told: Any) -> AsyncIterator[Kubernetes]:
    """Serve answers on a port, and give what talks to it."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    credentials = Credentials(server=f"http://{host}:{port}", **told)
    try:
        async with ApiServer(credentials, limits=LIMITS) as api:
            yield Kubernetes(api)
    finally:
        await runner.cleanup()


def over_http(fake: FakeApiServer) -> Handler:
    """Return the fake API server as one that is spoken to over HTTP."""

    async def handle(request: web.Request) -> web.Response:
        raw = await request.read()
        listing = request.method == "GET" and len(request.path.strip("/").split("/")) in (3, 5)
        verb = VERBS.get(request.method, "list" if listing else "get")
        try:
            status, answer = fake.answer(
                verb,
                request.method,
                request.path,
                request.query,
                json.loads(raw) if raw else None,
                request.content_type,
            )
        except Refused as refused:
            body = {"kind": "Status", "reason": refused.reason, "message": str(refused)}
            return web.json_response(body, status=refused.status, headers=refused.headers)
        return web.json_response(answer, status=status)

    return handle


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "mq", "labels": {"a": "b"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_objects_come_and_go() -> None:
    async with served(over_http(FakeApiServer())) as kube:
        made = await kube.apply(config_map("one", k="1"))
        await kube.create(config_map("one", k="2"))
        assert (await kube.get("ConfigMap", "mq", "one") or {})["data"] == {"k": "1"}
        uid = made["metadata"]["uid"]
        await kube.patch("ConfigMap", "mq", "one", uid=uid, patch={"data": {"k": "3"}})
        (found,) = await kube.list("ConfigMap", "mq", labels="a=b")
        assert (found["kind"], found["data"]) == ("ConfigMap", {"k": "3"})
        with pytest.raises(RetryError):
            await kube.delete("ConfigMap", "mq", "one", uid="another")
        await kube.delete("ConfigMap", "mq", "one", uid=uid)
        await kube.delete("ConfigMap", "mq", "one", uid=uid)
        assert await kube.list("ConfigMap", "mq") == []


async def test_a_list_is_whole_or_none() -> None:
    fake = FakeApiServer()
    for number in range(1201):
        fake.put(config_map(f"c{number:04}"))
    async with served(over_http(fake)) as kube:
        assert len(await kube.list("ConfigMap", "mq")) == 1201
        pages = len(fake.calls)
        assert pages == 3

        def expired(call: Call) -> None:
            if call.number == pages + 1:
                raise Refused(410, "Expired", "the provided continue parameter is too old")

        fake.before = expired
        with pytest.raises(RetryError, match="too old"):
            await kube.list("ConfigMap", "mq")


async def test_a_list_from_before_our_own_change_is_none() -> None:
    fake = FakeApiServer()
    async with served(over_http(fake)) as kube:
        for number in range(5):
            await kube.apply(config_map(f"c{number}"))
        fake.stale = lambda _: True
        with pytest.raises(RetryError, match="older than our last change"):
            await kube.list("ConfigMap", "mq")
        fake.stale = lambda _: False
        assert len(await kube.list("ConfigMap", "mq")) == 5


async def test_a_kubernetes_restored_from_a_backup_is_believed_after_a_while() -> None:
    fake, time = FakeApiServer(), [0.0]
    kube = Kubernetes(fake, clock=lambda: time[0])  # type: ignore[arg-type]  # it has `call`
    for number in range(5):
        await kube.apply(config_map(f"c{number}"))
    fake.stale = lambda _: True
    for moment in (0.0, RESTORED_S - 1):
        time[0] = moment
        with pytest.raises(RetryError, match="older than our last change"):
            await kube.list("ConfigMap", "mq")
    time[0] = RESTORED_S
    await kube.list("ConfigMap", "mq")
    await kube.list("ConfigMap", "mq")
    fake.stale = lambda _: False
    await kube.apply(config_map("later"))
    fake.stale = lambda _: True
    with pytest.raises(RetryError, match="older than our last change"):
        await kube.list("ConfigMap", "mq")


ANSWERS: list[tuple[int, dict[str, str], dict[str, str], type[Exception], str]] = [
    (409, {"reason": "Conflict", "message": "modified"}, {}, RetryError, "modified"),
    (410, {"reason": "Expired"}, {}, RetryError, "410"),
    (429, {"reason": "TooManyRequests"}, {"Retry-After": "7"}, RetryError, "429"),
    (500, {}, {}, RetryError, "500"),
    (503, {}, {}, RetryError, "503"),
    (401, {}, {}, RetryError, "401"),
    (403, {"message": "may not"}, {}, BlockedError, "patch configmaps one: 403 may not"),
    (422, {"message": "spec.x: Invalid"}, {}, InvalidError, "spec.x"),
    (400, {"message": "unknown field"}, {}, InvalidError, "unknown field"),
    (404, {"message": "namespaces not found"}, {}, BlockedError, "not found"),
]


@pytest.mark.parametrize(
    ("status", "said", "headers", "error", "text"), ANSWERS, ids=[str(a[0]) for a in ANSWERS]
)
async def test_each_refusal_asks_for_something(
    status: int, said: dict[str, str], headers: dict[str, str], error: type[Exception], text: str
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response(said, status=status, headers=headers)

    async with served(refuse) as kube:
        with pytest.raises(error, match=text) as caught:
            await kube.apply(config_map("one"))
    if "Retry-After" in headers:
        assert isinstance(caught.value, RetryError)
        assert caught.value.delay_s == 7


BLOCKED = [
    ('pods is forbidden: User "x" cannot', "the operator may patch configmaps"),
    ("forbidden: exceeded quota: q", "the namespace's quota has room"),
    ("forbidden: because it is being terminated", "the namespace is no longer being deleted"),
]


@pytest.mark.parametrize(("message", "until"), BLOCKED)
async def test_what_is_forbidden_says_what_must_change(message: str, until: str) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"message": message}, status=403)

    async with served(refuse) as kube:
        with pytest.raises(BlockedError) as caught:
            await kube.apply(config_map("one"))
    assert caught.value.until == until


async def test_a_server_that_says_nothing_or_nonsense_is_asked_again() -> None:
    over = asyncio.Event()

    async def silent(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    async def cut(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(text="<html>a proxy")

    for handler in (silent, cut, nonsense):
        async with served(handler) as kube:
            with pytest.raises(RetryError):
                await kube.get("ConfigMap", "mq", "one")
            over.set()


async def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    seen: list[str] = []
    token = tmp_path / "token"

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async with served(note, token_file=token) as kube:
        for said in ("one", "two"):
            token.write_text(f"{said}\n")
            await kube.get("ConfigMap", "mq", "one")
        token.unlink()
        with pytest.raises(RetryError, match="token"):
            await kube.get("ConfigMap", "mq", "one")
    assert seen == ["Bearer one", "Bearer two"]


# ---- credentials ---------------------------------------------------------------------------

CONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443/", certificate-authority: ca.crt}
users:
- name: u
  user: {token: "t"}
contexts:
- name: here
  context: {cluster: c, user: u, namespace: mq}
"""


def test_a_kubeconfig_is_read_from_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("PEM")
    path = tmp_path / "config"
    path.write_text(CONFIG)
    found = from_file(path)
    assert (found.server, found.namespace) == ("https://10.0.0.1:6443", "mq")
    assert (found.ca, found.token()) == (b"PEM", "t")


BAD_CONFIGS = {
    "not YAML": ("{", "not YAML"),
    "empty": ("", "not a kubeconfig"),
    "another context": (CONFIG.replace("current-context: here", "current-context: no"), "context"),
    "no certificate": (CONFIG, "ca.crt"),
    "a program": (
        CONFIG.replace('{token: "t"}', "{exec: {command: aws}}").replace(
            ", certificate-authority: ca.crt", ""
        ),
        "from a program",
    ),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_bad_kubeconfig_is_refused_with_a_cure(tmp_path: Path, name: str) -> None:
    text, said = BAD_CONFIGS[name]
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=said) as caught:
        from_file(path)
    assert caught.value.cure


def test_a_pod_has_its_service_account(tmp_path: Path) -> None:
    for name, text in {"token": "t\n", "namespace": "imago-system", "ca.crt": "PEM"}.items():
        (tmp_path / name).write_text(text)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    found = of_pod(environment, tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "imago-system")
    assert found.token() == "t"
    (tmp_path / "token").unlink()
    with pytest.raises(CredentialsError, match="no service account"):
        of_pod(environment, tmp_path)


def test_without_any_credentials_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError, match="no Kubernetes"):
        find(None, {})
