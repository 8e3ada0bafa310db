"""`kubectl imago report`: all that somebody needs who was not there, and no secret."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from imago_cli.clusters.redacting import LEFT_OUT, redacted, scrubbed
from imago_cli.kubectl.on_call import report
from imago_testing.kubernetes.custom_resources import USER, manifest
from imago_testing.kubernetes.on_call import SECRET, cluster_of_three

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.kubernetes.plugin import Kube


class TestReport:
    @pytest.fixture(autouse=True)
    def _answers(self, kube: Kube) -> None:
        cluster_of_three(kube)
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
        assert done.code == 2
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
        "jdbc:mysql://me:tr0ub4dor-and-3@db/orders refuses",
        "java -jar it.jar --password tr0ub4dor-and-3 --verbose",
        "caller eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ0cjB1YjRkb3ItYW5kLTMifQ.tr0ub4dor-and-3",
    ],
)
def test_secrets_in_lines_of_logs_are_left_out(text: str) -> None:
    assert SECRET not in scrubbed(text)
    assert LEFT_OUT in scrubbed(text)


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper at http://zk:2181/x@y",
        "imago user --token-file /a",
        "admin.token_file=/etc/imago/token/token",
        "passwordSecretRef: mine",
        "puts=3 tokens_count=9",
    ],
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
            "args": ["--user", "me", "--db-password", SECRET, f"--url=http://me:{SECRET}@db"],
            "data": {"broker.toml": f'[x]\npassword = "{SECRET}"\n'},
            "initContainers": [{"env": [{"name": "A", "value": SECRET}]}],
            "secretName": "demo-token",
            "items": [{"key": "log.level", "value": "info", "default": "info"}],
        }
    )
    assert SECRET not in json.dumps(found)
    assert found["env"][1]["value"] == "0"
    assert found["args"][:2] == ["--user", "me"]
    assert found["secretName"] == "demo-token"
    assert found["items"][0]["value"] == "info"
    assert "managedFields" not in found["metadata"]
