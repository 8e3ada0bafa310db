"""`imago doctor` about certificates, files with secrets, and secrets that all know."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.config import BrokerConfig
from imago_cli.doctor import security
from imago_cli.doctor.checks import CheckFinding, CheckLevel
from imago_testing.processes.certificates import Authority, Pair

if TYPE_CHECKING:
    from pathlib import Path

NOW_S = time.time()
DAY = 86_400


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def pair(authority: Authority, tmp_path: Path) -> Pair:
    own = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.issue("server").copy_to(own)
    own.key.chmod(0o600)
    return own


def configured(pair: Pair, authority: Authority, token: Path | None = None) -> BrokerConfig:
    base = BrokerConfig()
    return replace(
        base,
        tls=replace(
            base.tls,
            certificate_file=str(pair.certificate),
            key_file=str(pair.key),
            ca_file=str(authority.file),
        ),
        admin=replace(base.admin, token_file=str(token or "")),
    )


def worst(config: BrokerConfig, now_s: float = NOW_S) -> list[CheckFinding]:
    found = list(security.check_security(config, now_s))
    return [each for each in found if each.level is not CheckLevel.OK]


def test_nothing_is_said_against_what_is_right(
    pair: Pair, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "SOON_SECONDS", DAY)
    token = tmp_path / "token"
    token.write_text("c" * 32)
    token.chmod(0o600)
    assert worst(configured(pair, authority, token)) == []
    assert list(security.check_security(BrokerConfig(), NOW_S)) == []


def test_certificates_that_end(pair: Pair, authority: Authority) -> None:
    config = configured(pair, authority)
    soon = worst(config)
    assert [each.level for each in soon] == [CheckLevel.WARNING] * 2, "the authority ends, too"
    assert "ends in 2.0 days" in soon[0].message
    over = worst(config, NOW_S + 3 * DAY)
    assert [each.level for each in over] == [CheckLevel.ERROR] * 2
    assert {"without a restart" in each.cure for each in over} == {True}


def test_certificates_that_are_over_or_of_another_key(
    pair: Pair, authority: Authority, tmp_path: Path
) -> None:
    authority.issue("former", days=-1).copy_to(pair)
    assert next(each.level for each in worst(configured(pair, authority))) is CheckLevel.ERROR
    pair.key.write_bytes(authority.issue("other").key.read_bytes())
    (wrong, *_) = worst(configured(pair, authority))
    assert (wrong.level, wrong.message.split(":")[0]) == (CheckLevel.ERROR, "tls.certificate_file")
    gone = replace(pair, certificate=tmp_path / "gone.pem")
    assert worst(configured(gone, authority))[0].level is CheckLevel.ERROR


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604])
def test_files_that_others_may_read(
    pair: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(security, "SOON_SECONDS", 0)
    pair.key.chmod(mode)
    (found,) = worst(configured(pair, authority))
    assert (found.level, found.cure) == (CheckLevel.WARNING, f"chmod 600 {pair.key}")


def test_a_mounted_secret_may_be_read_by_its_group(
    pair: Pair, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "SOON_SECONDS", 0)
    mounted = tmp_path / "mounted.key"
    mounted.symlink_to(pair.key)
    pair.key.chmod(0o640)
    assert worst(configured(replace(pair, key=mounted), authority)) == []
    pair.key.chmod(0o644)
    assert len(worst(configured(replace(pair, key=mounted), authority))) == 1


@pytest.mark.parametrize(
    ("secret", "level"),
    [
        ("Admin", CheckLevel.ERROR),
        ("changeme\n", CheckLevel.ERROR),
        ("four words", CheckLevel.WARNING),
        ("\n", CheckLevel.ERROR),
        ("a-secret-that-nobody-knows", None),
    ],
)
def test_secrets_that_everybody_knows(
    pair: Pair,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    secret: str,
    level: CheckLevel | None,
) -> None:
    monkeypatch.setattr(security, "SOON_SECONDS", 0)
    token = tmp_path / "token"
    token.write_text(secret)
    token.chmod(0o600)
    found = worst(configured(pair, authority, token))
    assert [each.level for each in found] == ([level] if level else [])
    assert all(not secret.strip() or secret.strip() not in each.message for each in found)


def test_the_command_says_it(pair: Pair, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    pair.key.chmod(0o644)
    config.write_text(
        f'[broker]\ndata_dir = "{tmp_path / "data"}"\n[zookeeper]\nconnect = "none"\n'
        f'[tls]\ncertificate_file = "{pair.certificate}"\nkey_file = "{pair.key}"\n'
    )
    words = [sys.executable, "-m", "imago_cli", "doctor", "--json", "--config", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["findings"]
    said = [(each["check"], each["level"]) for each in found if each["check"] == "secrets"]
    assert said == [("secrets", "warning")], done.stdout


@pytest.mark.parametrize(
    ("connect", "user", "protect", "said"),
    [
        ("none", "", True, ""),
        ("localhost:2181,127.0.0.1:2182/prod", "", True, ""),
        (
            "zk-1:2181,zk-2:2181/prod",
            "",
            True,
            "zookeeper.user is not set: anyone who reaches zk-1",
        ),
        ("localhost:2181,zk-2:2181", "imago", False, "zookeeper.protect is false"),
        ("zk-1:2181", "imago", True, ""),
    ],
)
def test_a_registry_that_others_may_change(
    connect: str, user: str, protect: bool, said: str, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("c" * 32)
    password.chmod(0o600)
    base = BrokerConfig()
    given = str(password) if user else ""
    changed = replace(
        base.zookeeper, connect=connect, user=user, password_file=given, protect=protect
    )
    found = [each.message for each in worst(replace(base, zookeeper=changed))]
    assert [message.startswith(said) for message in found] == ([True] if said else [])
