"""`kubectl imago user`: objects, orders, and the files of a client."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.spec.kinds import USER as KIND
from imago_testing.kubernetes.custom_resources import USER, manifest
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube

CLUSTERS, USERS = "imagoclusters.imago.dev", "imagousers.imago.dev"
STATUS = {
    "secretName": "ann-secret",
    "lastRotation": "2026-01-02T03:04:05Z",
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "InSync"},
        {"type": "Warning", "status": "True", "reason": "AuthorizationOff", "message": "Open."},
    ],
}
SECRET = {"bootstrap": "demo-bootstrap.mq.svc:9876", "username": "ann", "password": 'pass"word'}


@pytest.fixture(autouse=True)
def _there(kube: Kube, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = {key: base64.b64encode(text.encode()).decode() for key, text in SECRET.items()}
    labels = {"imago.dev/cluster": "demo", "imago.dev/component": "broker", "imago.dev/shard": "0"}
    kube.objects = {
        CLUSTERS: [resource()],
        USERS: [{**manifest(USER, name="ann"), "status": STATUS}, manifest(USER, OTHER, "bob")],
        "secrets": [{"metadata": {"name": "ann-secret"}, "data": data}],
        "pods": [{"metadata": {"name": "demo-s0-0", "labels": labels}}],
    }
    listed = {
        "items": [{"name": "ann", "signs": True, "rules": [{}]}, {"name": "eve", "rules": []}]
    }
    path = "GET /admin/v1/users?limit=1000&next="
    kube.brokers = {"demo-s0-0": {path: [200, {**listed, "next": None}]}}


OTHER: dict[str, Any] = {"spec.userName": "bob", "spec.clusterRef": {"name": "demo"}}


def test_users_of_brokers_and_their_objects(kube: Kube) -> None:
    done = kube.run("user", "list", "demo", "-o", "json")
    rows = [(r["user"], r["brokers"], r["resource"], r["ready"]) for r in json.loads(done.out)]
    assert rows == [
        ("ann", "yes", "ann", "InSync"),
        ("eve", "yes", "", ""),
        ("bob", "no", "bob", ""),
    ]
    assert "eve" in kube.run("user", "list", "demo").out


def test_a_user_with_its_rules_and_what_is_wrong(kube: Kube) -> None:
    done = kube.run("user", "show", "ann")
    for words in ("user ann of demo: Ready True InSync", "secret: ann-secret", "topic:orders*"):
        assert words in done.out
    assert "Warning: AuthorizationOff: Open." in done.out
    assert kube.run("user", "show", "nobody").code == 1


def test_a_user_of_a_cluster_is_shown_by_either_name(kube: Kube) -> None:
    assert "user ann of demo" in kube.run("user", "show", "ann", "--cluster", "demo").out
    assert "user bob of demo" in kube.run("user", "show", "bob", "--cluster", "demo").out
    refused = kube.run("user", "show", "ann", "--cluster", "other")
    assert refused.code == 1
    assert "other has no ImagoUser ann here" in refused.err


def test_a_user_that_is_made_is_one_that_the_operator_reads(kube: Kube) -> None:
    allow = ("--allow", "topic:orders*=publish,describe", "--allow", "cluster=list")
    done = kube.run("user", "create", "cid", "--cluster", "demo", *allow, "--rotate-every", "720h")
    assert done.code == 0, done.err
    made = kube.made()
    assert list(KIND.problems(made)) == []
    assert [acl["resource"] for acl in made["spec"]["authorization"]["acls"]] == [
        {"type": "Topic", "name": "orders", "patternType": "prefix"},
        {"type": "Cluster"},
    ]
    dry = kube.run("user", "create", "cid", "--cluster", "demo", "--dry-run")
    assert json.loads(dry.out)["metadata"] == {"name": "cid"}
    assert kube.run("user", "create", "c", "--cluster", "demo", "--allow", "topic:a").code == 2


def test_who_makes_a_user_of_no_cluster_or_an_open_one_is_told(kube: Kube) -> None:
    done = kube.run("user", "create", "cid", "--cluster", "dmo")
    assert (done.code, '"dmo" not found' in done.err) == (1, True)
    assert "`kubectl imago status -A`" in done.err
    assert not any(call[0] == "create" for call in kube.calls())
    told = "brokers of demo check no rights until its spec.authorization.type is Simple"
    assert told in kube.run("user", "create", "cid", "--cluster", "demo").err
    for closed in ({"spec.authorization": {"type": "Simple"}}, CLOSED_BY_CONFIG):
        kube.objects[CLUSTERS] = [resource(closed)]
        done = kube.run("user", "create", "cid", "--cluster", "demo")
        assert (done.code, told in done.err) == (0, False)
    kube.refusals[f"get {CLUSTERS}"] = "Error from server (Forbidden): no"
    assert kube.run("user", "create", "cid", "--cluster", "demo").code == 0


CLOSED_BY_CONFIG: dict[str, Any] = {"spec.brokers.config": {"acl.enabled": True}}


def test_a_password_is_replaced_by_an_annotation(kube: Kube) -> None:
    assert kube.run("user", "rotate", "ann").code == 0
    assert kube.calls()[-1][:3] == ["annotate", USERS, "ann"]
    assert kube.calls()[-1][-1].startswith("imago.dev/force-renew=20")
    kube.objects[USERS][0]["spec"]["authentication"] = {"passwordSecretRef": {"name": "mine"}}
    done = kube.run("user", "rotate", "ann")
    assert (done.code, "Secret mine" in done.err) == (1, True)


def test_a_user_with_a_certificate(kube: Kube) -> None:
    done = kube.run("user", "create", "cid", "--cluster", "demo", "--certificate")
    assert done.code == 0, done.err
    assert kube.made()["spec"]["authentication"] == {"type": "Tls"}
    longer = ("--certificate", "--validity", "8760h")
    dry = kube.run("user", "create", "cid", "--cluster", "demo", *longer, "--dry-run")
    made = json.loads(dry.out)
    assert list(KIND.problems(made)) == []
    assert made["spec"]["authentication"]["validity"] == "8760h"
    for wrong in (("--certificate", "--rotate-every", "24h"), ("--validity", "48h")):
        assert kube.run("user", "create", "cid", "--cluster", "demo", *wrong).code == 2

    ann = kube.objects[USERS][0]
    ann["spec"]["authentication"] = {"type": "Tls"}
    ends = {"signer": "ab", "issued": "2026-01-02T03:04:05Z", "notAfter": "2026-04-02T03:04:05Z"}
    ann["status"] = {**STATUS, "certificate": ends}
    told = kube.run("user", "show", "ann").out
    assert "certificate since: 2026-01-02T03:04:05Z" in told
    assert "certificate until: 2026-04-02T03:04:05Z" in told
    assert "its certificate is replaced" in kube.run("user", "rotate", "ann").err
    entries = {"tls.crt": "PEM", "tls.key": "KEY", "ca.crt": "CA"}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}
    kube.objects["secrets"][0]["data"] = data
    assert kube.run("user", "files", "ann").code == 0
    folder = Path("ann").absolute()
    said = (folder / "tls.properties").read_text().splitlines()
    assert f"tls.client.keyPath={folder}/tls.key" in said
    assert f"tls.client.certPath={folder}/tls.crt" in said
    assert not (folder / "tools.yml").exists()


def test_a_user_with_a_token(kube: Kube) -> None:
    create = ("user", "create", "cid", "--cluster", "demo", "--token")
    assert kube.run(*create).code == 0
    assert kube.made()["spec"]["authentication"] == {"type": "Token"}
    for validity, more in (("8760h", {}), ("24h", {"renewBefore": "21600s"})):
        made = json.loads(kube.run(*create, "--validity", validity, "--dry-run").out)
        assert list(KIND.problems(made)) == []
        said = {"type": "Token", "validity": validity, **more}
        assert made["spec"]["authentication"] == said
    for wrong in (("--certificate",), ("--rotate-every", "24h"), ("--validity", "a week")):
        assert kube.run(*create, *wrong).code == 2

    ann = kube.objects[USERS][0]
    ann["spec"]["authentication"] = {"type": "Token"}
    ends = {"number": "ab", "issued": "2026-01-02T03:04:05Z", "notAfter": "2026-04-02T03:04:05Z"}
    ann["status"] = {**STATUS, "token": ends}
    told = kube.run("user", "show", "ann").out
    assert "token since: 2026-01-02T03:04:05Z" in told
    assert "token until: 2026-04-02T03:04:05Z" in told
    assert "its token is replaced" in kube.run("user", "rotate", "ann").err
    entries = {"token": "imt.ann.ab.secret", "admin": "https://demo-admin.mq.svc:8080"}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}
    kube.objects["secrets"][0]["data"] = data
    done = kube.run("user", "files", "ann")
    assert "imt." not in done.out + done.err
    assert Path("ann/token").read_text() == "imt.ann.ab.secret\n"
    assert stat.S_IMODE(Path("ann/token").stat().st_mode) == 0o600


def test_a_user_is_deleted_after_a_question(kube: Kube) -> None:
    assert kube.run("user", "delete", "ann").code == 2
    assert kube.run("user", "delete", "ann", "--yes").code == 0
    assert kube.calls()[-1] == ["delete", USERS, "ann", "--timeout=50s"]


def test_files_of_a_client_are_for_its_owner_alone(kube: Kube) -> None:
    done = kube.run("user", "files", "ann")
    assert done.code == 0, done.err
    folder = Path("ann")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "bootstrap": "demo-bootstrap.mq.svc:9876\n",
        "username": "ann\n",
        "password": 'pass"word\n',
        "tools.yml": 'accessKey: "ann"\nsecretKey: "pass\\"word"\n',
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert 'pass"word' not in done.out + done.err
    assert kube.run("user", "files", "ann").code == 2, "it overwrites nothing"
    assert "has not made the Secret" in kube.run("user", "files", "bob").err
