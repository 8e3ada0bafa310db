"""What Helm runs in the operator's image, against an API server that is played."""

from __future__ import annotations

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.spec.kinds import CLUSTER, KINDS
from imago_tools.chart_files import CHART

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PATHS = {kind.plural: f"/apis/imago.dev/v1alpha1/{kind.plural}" for kind in KINDS}


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", CHART / "files" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    return module


class Played:
    """An API server, and an operator, that answer what the test says."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        """By method and path; several answers are given one after the other, the last for ever."""
        self.turns: dict[str, list[tuple[int, Any]]] = {}
        self.calls: list[tuple[str, Any]] = []
        played = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                code, said = played.take(f"{self.command} {self.path}", body)
                raw = json.dumps(said).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_PATCH = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def take(self, call: str, body: Any) -> tuple[int, Any]:
        self.calls.append((call, body))
        if turns := self.turns.get(call):
            return turns.pop(0)
        return self.answers.get(call, (404, {"message": "not found"}))


@pytest.fixture
def played() -> Iterator[Played]:
    made = Played()
    yield made
    made.server.shutdown()
    made.server.server_close()


CREATE = (
    f"POST {PATHS['imagoclusters'].replace('imagoclusters', 'namespaces/orders/imagoclusters')}"
)
CREATE += "?dryRun=All"
ODD = (422, {"message": "managed: an odd number of servers"})


def well(played: Played) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        played.answers[f"GET {path}"] = (200, {})


def test_the_cluster_that_is_tried_is_a_good_one_and_the_wrong_one_is_wrong(
    hooks: ModuleType,
) -> None:
    assert list(CLUSTER.problems(hooks.CLUSTER)) == []
    wrong = json.loads(json.dumps(hooks.CLUSTER))
    wrong["spec"]["zookeeper"]["managed"]["replicas"] = 4
    assert ["odd number" in p.message for p in CLUSTER.problems(wrong)] == [True]
    assert set(hooks.KINDS) == set(PATHS)


def test_a_check_of_what_is_well_passes(hooks: ModuleType, played: Played) -> None:
    well(played)
    played.turns[CREATE] = [(201, {}), ODD]

    hooks.check(hooks.Api(played.url, "secret", None), played.url, "orders")

    bodies = [body for call, body in played.calls if call == CREATE]
    assert [b["spec"]["zookeeper"]["managed"]["replicas"] for b in bodies] == [3, 4]


def test_an_operator_may_take_its_time(hooks: ModuleType, played: Played) -> None:
    well(played)
    played.turns["GET /readyz"] = [(503, {})] * 5
    played.turns[CREATE] = [(201, {}), ODD]

    hooks.check(hooks.Api(played.url, "secret", None), played.url, "orders")

    assert [call for call, _ in played.calls].count("GET /readyz") == 6


def test_an_operator_that_never_answers_fails_the_check(hooks: ModuleType, played: Played) -> None:
    well(played)
    played.answers["GET /readyz"] = (503, {})
    with pytest.raises(SystemExit, match="/readyz"):
        hooks.check(hooks.Api(played.url, "secret", None), played.url, "orders")


def test_a_server_that_refuses_clusters_fails_the_check(hooks: ModuleType, played: Played) -> None:
    with pytest.raises(hooks.ApiError, match="404"):
        hooks.check(hooks.Api(played.url, "secret", None), "", "orders")


def test_a_server_without_the_rules_fails_the_check(hooks: ModuleType, played: Played) -> None:
    played.answers[CREATE] = (201, {})
    with pytest.raises(SystemExit, match="was accepted"):
        hooks.check(hooks.Api(played.url, "secret", None), "", "orders")


def test_a_busy_server_is_asked_again(hooks: ModuleType, played: Played) -> None:
    busy = (429, {"message": "storage is (re)initializing"})
    played.turns[CREATE] = [busy, (201, {}), busy, ODD]
    hooks.check(hooks.Api(played.url, "secret", None), "", "orders")
    assert [call for call, _ in played.calls] == [CREATE] * 4


def test_a_server_that_stays_busy_fails_the_check(hooks: ModuleType, played: Played) -> None:
    played.answers[CREATE] = (503, {"message": "no leader"})
    with pytest.raises(hooks.ApiError, match="503"):
        hooks.check(hooks.Api(played.url, "secret", None), "", "orders")


def test_another_refusal_is_not_taken_for_ours(hooks: ModuleType, played: Played) -> None:
    played.turns[CREATE] = [(201, {}), (403, {"message": "quota"})]
    with pytest.raises(hooks.ApiError, match="403"):
        hooks.check(hooks.Api(played.url, "secret", None), "", "orders")


PODS = "GET /api/v1/namespaces/own/pods?labelSelector=app%3Dx"


def topic(name: str, *finalizers: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "orders", "finalizers": [*finalizers]}}


def test_only_our_finalizer_is_taken_off_and_only_when_no_operator_is_left(
    hooks: ModuleType, played: Played
) -> None:
    played.turns[PODS] = [(200, {"items": [{}]}), (200, {"items": [{}]})]
    played.answers[PODS] = (200, {"items": []})
    for path in PATHS.values():
        played.answers[f"GET {path}"] = (200, {"items": []})
    items = [topic("a", "other", "imago.dev/operator"), topic("b", "other"), {"metadata": {}}]
    played.answers[f"GET {PATHS['imagotopics']}"] = (200, {"items": items})
    patch = (
        f"PATCH {PATHS['imagotopics'].replace('imagotopics', 'namespaces/orders/imagotopics/a')}"
    )
    played.answers[patch] = (200, {})

    assert hooks.release(hooks.Api(played.url, "secret", None), [], "own", "app%3Dx") == 1

    calls = [call for call, _ in played.calls]
    assert calls[:3] == [PODS] * 3
    assert [(call, body) for call, body in played.calls if "PATCH" in call] == [
        (
            patch,
            [
                {"op": "test", "path": "/metadata/finalizers/1", "value": "imago.dev/operator"},
                {"op": "remove", "path": "/metadata/finalizers/1"},
            ],
        )
    ]


def test_a_confined_release_looks_into_its_namespaces_alone(
    hooks: ModuleType, played: Played
) -> None:
    played.answers[PODS] = (200, {"items": []})
    hooks.release(hooks.Api(played.url, "secret", None), ["one", "two"], "own", "app%3Dx")
    asked = {call.split("/")[5] for call, _ in played.calls if call != PODS}
    assert asked == {"one", "two"}


def test_nothing_is_released_under_an_operator(hooks: ModuleType, played: Played) -> None:
    played.answers[PODS] = (200, {"items": [{}]})
    with pytest.raises(SystemExit, match="still there"):
        hooks.release(hooks.Api(played.url, "secret", None), [], "own", "app%3Dx")
    assert {call for call, _ in played.calls} == {PODS}
