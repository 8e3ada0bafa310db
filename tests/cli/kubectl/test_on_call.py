"""What somebody on call asks first: puts, disks, addresses, pipelines, and a report to hand on."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from imago_cli.clusters.redacting import LEFT_OUT, redacted, scrubbed
from imago_cli.kubectl.on_call import report
from imago_testing.kubernetes.custom_resources import PIPELINE, USER, manifest
from imago_testing.operated.resources import resource
from imago_testing.operated.stories import by_row

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.kubernetes.plugin import Kube

CLUSTERS = "imagoclusters.imago.dev"
SECRET = "tr0ub4dor-and-3"
"""What must not be found in a report."""


def pod(shard: int, ordinal: int, role: str = "slave") -> dict[str, Any]:
    labels = {"cluster": "demo", "component": "broker", "shard": str(shard), "role": role}
    metadata = {
        "name": f"demo-s{shard}-{ordinal}",
        "labels": {f"imago.dev/{key}": value for key, value in labels.items()},
    }
    env = [{"name": "IMAGO__BROKER__SHARD", "value": "0"}, {"name": "MINE", "value": SECRET}]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "broker", "env": env}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def status(role: str, *reasons: str, share: float = 0.5, waits: str = "") -> list[Any]:
    disk = {"usedBytes": int(share * 2**34), "totalBytes": 2**34, "usedShare": share}
    return [
        200,
        {
            "role": role,
            "waitsFor": waits,
            "puts": {"accepted": not reasons, "reasons": list(reasons)},
            "gets": {"accepted": True, "reasons": []},
            "disk": {**disk, "level": "full" if share > 0.9 else "normal", "writable": share < 0.9},
        },
    ]


@pytest.fixture(autouse=True)
def _cluster(kube: Kube) -> None:
    kube.objects[CLUSTERS] = [resource()]
    kube.objects["pods"] = [pod(0, 0, "master"), pod(0, 1), pod(1, 0)]
    for name, role in (("demo-s0-0", "master"), ("demo-s0-1", "slave"), ("demo-s1-0", "master")):
        kube.brokers[name] = {"GET /admin/v1/status": status(role)}


class TestPuts:
    def test_shards_that_accept_everything(self, kube: Kube) -> None:
        done = kube.run("puts", "demo", "-o", "json")
        rows = {row["shard"]: row for row in json.loads(done.out)}
        assert done.code == 0
        assert {name: (row["puts"], row["gets"]) for name, row in rows.items()} == {
            "shard-0": ("accepted", "accepted"),
            "shard-1": ("accepted", "accepted"),
        }

    def test_the_master_says_why_it_refuses(self, kube: Kube) -> None:
        kube.brokers["demo-s0-0"] = {"GET /admin/v1/status": status("master", "the disk is full")}
        done = kube.run("puts", "demo")
        assert done.code == 1
        assert "the disk is full" in done.out
        assert "demo-s0-0, master" in done.out

    def test_without_a_master_the_others_say_what_they_wait_for(self, kube: Kube) -> None:
        said = status("electing", waits="an election")
        for name in ("demo-s0-0", "demo-s0-1"):
            kube.brokers[name] = {"GET /admin/v1/status": said}
        done = kube.run("puts", "demo", "-o", "json")
        row = json.loads(done.out)[0]
        assert (done.code, row["puts"], row["why"]) == (1, "refused", "an election")

    def test_a_shard_that_nobody_answers_for_is_not_said_to_be_well(self, kube: Kube) -> None:
        del kube.brokers["demo-s1-0"]
        done = kube.run("puts", "demo", "-o", "json")
        row = json.loads(done.out)[1]
        assert (done.code, row["puts"]) == (1, "unknown")
        assert "no route to host" in row["why"]

    def test_a_cluster_without_pods(self, kube: Kube) -> None:
        kube.objects["pods"] = []
        done = kube.run("puts", "demo")
        assert done.code == 1
        assert "has no broker pods" in done.err
        assert "kubectl imago explain demo" in done.err


class TestDisks:
    def test_the_fullest_comes_first(self, kube: Kube) -> None:
        kube.brokers["demo-s0-1"] = {"GET /admin/v1/status": status("slave", share=0.09)}
        kube.brokers["demo-s1-0"] = {"GET /admin/v1/status": status("master", share=0.95)}
        done = kube.run("disks", "demo", "-o", "json")
        rows = json.loads(done.out)
        assert done.code == 1, "one of them takes nothing more"
        assert [row["pod"] for row in rows] == ["demo-s1-0", "demo-s0-0", "demo-s0-1"]
        assert (rows[0]["share"], rows[0]["puts"]) == ("95.0 %", "refused")
        assert rows[1]["used"] == "8.0 GiB"

    def test_a_broker_that_does_not_answer_is_in_the_list(self, kube: Kube) -> None:
        del kube.brokers["demo-s0-1"]
        done = kube.run("disks", "demo")
        assert done.code == 1
        assert "no route to host" in done.out


CLIENTS = "/admin/v1/cluster/clients"


def connected(name: str, *places: tuple[str, int, bool], user: str = "") -> dict[str, Any]:
    """Return a client as brokers tell of it: its connections are shard, replica, TLS."""
    lists = {"producerGroups": [], "consumerGroups": ["billing"], "topics": ["orders"]}
    found = [
        {"shard": s, "replica": r, "peer": "10.0.0.7:4711", "protocol": "remoting", "tls": tls}
        for s, r, tls in places
    ]
    about = {"name": name, "language": "JAVA", "version": "5.3.2", "connectionCount": len(found)}
    return {**about, **lists, "users": [user] if user else [], "connections": found}


class TestClients:
    def page(self, *items: dict[str, Any], after: str | None = None, missing: Any = ()) -> Any:
        return [200, {"items": list(items), "next": after, "missing": list(missing)}]

    def asked(self, **query: str) -> str:
        return f"GET {CLIENTS}?{urlencode({**query, 'limit': '1000', 'next': ''})}"

    def test_who_is_connected_to_which_broker_as_whom(
        self, kube: Kube, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        one = connected("app-1", ("shard-0", 1, True), ("shard-1", 1, False), user="ann")
        two = connected("app-2", ("shard-0", 1, False))
        second = f"GET {CLIENTS}?limit=1000&next=app-2"
        pages = {self.asked(): self.page(one, after="app-2"), second: self.page(two)}
        kube.brokers["demo-s0-0"] = pages
        done = kube.run("clients", "demo", "-o", "json")
        assert done.code == 0, done.err
        assert json.loads(done.out) == {"clients": [one, two], "missing": []}
        shown = kube.run("clients", "demo").out
        rows = [line.split() for line in shown.splitlines() if "app-" in line]
        told = [("app-1" in row, "shard-0/1" in row, "yes" in row) for row in rows]
        assert told == [(True, True, True), (True, False, False), (False, True, False)], shown

    def test_only_those_that_are_chosen_are_asked_for(self, kube: Kube) -> None:
        kube.brokers["demo-s0-0"] = {self.asked(user="a&b", group="billing"): self.page()}
        done = kube.run("clients", "demo", "--user", "a&b", "--group", "billing")
        assert (done.code, done.out) == (0, "")
        assert "nobody who fits" in done.err

    def test_another_broker_tells_where_the_first_is_away(self, kube: Kube) -> None:
        del kube.brokers["demo-s0-0"]
        kube.brokers["demo-s0-1"] = {self.asked(): self.page(connected("a", ("shard-0", 2, True)))}
        done = kube.run("clients", "demo")
        assert (done.code, "shard-0/2" in done.out) == (0, True)

    def test_who_did_not_answer_is_said(self, kube: Kube) -> None:
        away = {"shard": "shard-1", "since": None, "why": "it has no master"}
        kube.brokers["demo-s0-0"] = {self.asked(): self.page(missing=[away])}
        done = kube.run("clients", "demo")
        assert done.code == 1
        assert "shard-1" in done.err
        assert "it has no master" in done.err
        assert "nobody" not in done.err

    def test_what_the_first_page_lacks_is_said(self, kube: Kube) -> None:
        away = {"shard": "shard-1", "since": None, "why": "it has no master"}
        one, two = (connected(name, ("shard-0", 0, True)) for name in ("a", "b"))
        second = f"GET {CLIENTS}?limit=1000&next=b"
        first = self.page(one, after="b", missing=[away])
        kube.brokers["demo-s0-0"] = {self.asked(): first, second: self.page(two)}
        done = kube.run("clients", "demo", "-o", "json")
        assert (done.code, json.loads(done.out)["missing"]) == (1, [away])

    def test_brokers_that_cannot_tell_yet(self, kube: Kube) -> None:
        for answers in kube.brokers.values():
            answers[self.asked()] = [404, {"message": "no such path", "cure": ""}]
        done = kube.run("clients", "demo")
        assert done.code == 1
        assert "older version" in done.err
        assert "kubectl imago status demo" in done.err


class TestAddresses:
    def test_inside_and_outside_with_what_each_leads_to(self, kube: Kube) -> None:
        told = by_row()["Settled"]
        way = {
            "name": "world",
            "bootstrap": "mq.example.com:9876",
            "grpc": "mq.example.com:8081",
            "brokers": [
                {
                    "pod": "demo-s0-0",
                    "rocketmq": "b0.example.com:10911",
                    "metaq": "b0.example.com:8123",
                    "grpc": "b0.example.com:8081",
                    "leadsTo": "203.0.113.7",
                }
            ],
        }
        kube.objects[CLUSTERS] = [{**told, "status": {**told["status"], "listeners": [way]}}]
        rows = json.loads(kube.run("addresses", "demo", "-o", "json").out)
        assert [row["listener"] for row in rows] == ["inside", "world", "world"]
        assert rows[1]["rocketmq"] == "mq.example.com:9876"
        assert (rows[2]["of"], rows[2]["leads to"]) == ("demo-s0-0", "203.0.113.7")
        assert [row["grpc"] for row in rows] == [
            "demo-bootstrap.mq.svc:8081",
            "mq.example.com:8081",
            "b0.example.com:8081",
        ]
        assert "203.0.113.7" in kube.run("addresses", "demo").out

    def test_a_cluster_that_nobody_has_looked_at(self, kube: Kube) -> None:
        assert "no address yet" in kube.run("addresses", "demo").err


def test_pipelines_say_why_they_are_not_ready(kube: Kube) -> None:
    one = manifest(PIPELINE, {"spec.clusterRef": {"name": "demo"}})
    stalled = {"type": "Ready", "status": "False", "reason": "Failed", "message": "no such table"}
    other = manifest(PIPELINE, {"spec.clusterRef": {"name": "another"}})
    kube.objects["imagopipelines.imago.dev"] = [
        {**one, "status": {"conditions": [stalled], "epoch": 3, "state": "FAILED", "rows": 7}},
        other,
    ]
    (row,) = json.loads(kube.run("pipelines", "demo", "-o", "json").out)
    assert (row["ready"], row["reason"]) == ("False", "Failed: no such table")
    assert (row["state"], row["epoch"], row["rows"]) == ("FAILED", 3, 7)
    kube.objects["imagopipelines.imago.dev"] = [other]
    assert "has no pipelines" in kube.run("pipelines", "demo").err


class TestReport:
    @pytest.fixture(autouse=True)
    def _answers(self, kube: Kube) -> None:
        for name, answers in kube.brokers.items():
            kube.logs[name] = f"broker_started shard=0\npassword={SECRET}\n"
            for path in report.ASKED[1:]:
                answers[f"GET {path}"] = [200, {"path": path}]
        kube.objects["imagousers.imago.dev"] = [manifest(USER)]
        kube.objects["secrets"] = [{"metadata": {"name": "demo-token"}, "data": {"t": SECRET}}]

    def _read(self, path: Path) -> dict[str, str]:
        found = {}
        with tarfile.open(path) as archive:
            for entry in archive.getmembers():
                file = archive.extractfile(entry)
                assert file is not None
                found[entry.name.partition("/")[2]] = file.read().decode()
        return found

    def test_it_has_what_somebody_needs_and_no_secret(self, kube: Kube, tmp_path: Path) -> None:
        kube.logs["demo-s0-1-previous"] = f"Authorization: Bearer {SECRET}\nended\n"
        path = tmp_path / "it.tar.gz"
        done = kube.run("report", "demo", "--file", str(path))
        assert (done.code, done.err) == (0, "")
        files = self._read(path)
        for name in (
            *("cluster.json", "explain.txt", "resources/imagousers.json", "objects/pods.json"),
            *("objects/events.json", "brokers/demo-s0-0/status.json", "logs/demo-s0-0.txt"),
            "logs/demo-s0-1-previous.txt",
        ):
            assert name in files, name
        assert not [name for name, text in files.items() if SECRET in text]
        assert "broker_started" in files["logs/demo-s0-0.txt"]
        assert not [call for call in kube.calls() if "secrets" in call]
        assert path.stat().st_mode & 0o777 == 0o600

    def test_what_cannot_be_read_is_named_and_the_rest_is_there(
        self, kube: Kube, tmp_path: Path
    ) -> None:
        del kube.brokers["demo-s1-0"]
        kube.refusals["get events"] = 'Error (Forbidden): events is forbidden: cannot list "events"'
        path = tmp_path / "it.tar.gz"
        done = kube.run("report", "demo", "-f", str(path))
        assert done.code == 0
        assert "2 parts not read" in done.out
        missing = self._read(path)["missing.txt"]
        assert "objects/events.json" in missing
        assert "brokers/demo-s1-0" in missing
        assert "brokers/demo-s0-0/status.json" in self._read(path)

    def test_a_file_that_is_there_is_kept(self, kube: Kube, tmp_path: Path) -> None:
        path = tmp_path / "it.tar.gz"
        path.write_text("mine")
        done = kube.run("report", "demo", "-f", str(path))
        assert done.code == 1
        assert "exists" in done.err
        assert path.read_text() == "mine"

    def test_long_logs_are_cut_at_their_beginning(
        self, kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(report, "LOG_CHARS_MAX", 10)
        monkeypatch.setattr(report, "LINES_MAX", 3)
        kube.logs["demo-s0-0"] = "first\n" * 10 + "the last\n"
        path = tmp_path / "it.tar.gz"
        kube.run("report", "demo", "-f", str(path))
        assert self._read(path)["logs/demo-s0-0.txt"] == "\nthe last\n"
        assert [call for call in kube.calls() if "--tail=3" in call]


@pytest.mark.parametrize(
    "text",
    [
        "password=tr0ub4dor-and-3",
        'the "password": "tr0ub4dor-and-3"',
        "Authorization: Bearer tr0ub4dor-and-3",
        "-----BEGIN RSA PRIVATE KEY-----\ntr0ub4dor-and-3\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ntr0ub4dor-and-3",
        "db_password: tr0ub4dor-and-3, user: me",
        "API_KEY='tr0ub4dor-and-3'",
    ],
)
def test_secrets_in_lines_of_logs_are_left_out(text: str) -> None:
    assert SECRET not in scrubbed(text)
    assert LEFT_OUT in scrubbed(text)


@pytest.mark.parametrize(
    "text",
    ["admin.token_file=/etc/imago/token/token", "passwordSecretRef: mine", "puts=3 tokens_count=9"],
)
def test_where_a_secret_is_may_be_read(text: str) -> None:
    assert scrubbed(text) == text


def test_values_that_people_gave_are_left_out_of_objects() -> None:
    found = redacted(
        {
            "metadata": {
                "managedFields": [1],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET},
            },
            "env": [
                {"name": "MINE", "value": SECRET},
                {"name": "IMAGO__BROKER__SHARD", "value": "0"},
            ],
            "token": SECRET,
            "secretName": "demo-token",
            "items": [{"key": "log.level", "value": "info", "default": "info"}],
        }
    )
    assert SECRET not in json.dumps(found)
    assert found["env"][1]["value"] == "0"
    assert found["secretName"] == "demo-token"
    assert found["items"][0]["value"] == "info"
    assert "managedFields" not in found["metadata"]
