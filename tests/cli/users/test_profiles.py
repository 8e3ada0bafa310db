"""`imago --profile NAME`: what reaches a cluster, out of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imago_cli.exits import CommandUsageError, Exit
from imago_cli.profiles import FILE_VARIABLE, PATHS, TEXTS, apply

Imago = Callable[..., Any]

PROD = """\
[prod]
bootstrap = "a:9876,b:9876"
admin = "https://a:8080"
user = "ann"
password_file = "ann.password"
tls_ca_file = "/etc/ca.pem"

[test]
bootstrap = "c:9876"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    kept = tmp_path / "profiles.toml"
    kept.write_text(PROD)
    return kept


def test_a_profile_stands_in_for_what_is_not_said(file: Path) -> None:
    said = {FILE_VARIABLE: str(file), "IMAGO_ADMIN": "http://other:1"}
    apply("prod", said)
    assert said == {
        FILE_VARIABLE: str(file),
        "IMAGO_ADMIN": "http://other:1",
        "IMAGO_BOOTSTRAP": "a:9876,b:9876",
        "IMAGO_USER": "ann",
        "IMAGO_PASSWORD_FILE": str(file.parent / "ann.password"),
        "IMAGO_TLS_CA": "/etc/ca.pem",
    }


def test_every_key_has_its_variable(tmp_path: Path) -> None:
    keys = {**TEXTS, **PATHS}
    kept = tmp_path / "profiles.toml"
    kept.write_text("[all]\n" + "".join(f'{key} = "/x"\n' for key in keys))
    said = {FILE_VARIABLE: str(kept)}
    apply("all", said)
    assert set(said) == {FILE_VARIABLE, *keys.values()}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (PROD, "prd", "did you mean prod"),
        (PROD, "zzz", "it has prod, test"),
        ("", "x", "it has none"),
        ('[x]\npassword = "secret"', "x", "holds no secret"),
        ('[x]\nbootstap = "a:1"', "x", "did you mean bootstrap"),
        ("[x]\nbootstrap = 7", "x", "must be a text, not 7"),
        ("[x", "x", "profiles.toml"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_with_the_cure(
    file: Path, text: str, name: str, words: str
) -> None:
    file.write_text(text)
    with pytest.raises(CommandUsageError) as refused:
        apply(name, {FILE_VARIABLE: str(file)})
    assert words in f"{refused.value} {refused.value.cure}"
    assert "secret" not in str(refused.value).replace("no secret", "")


def test_commands_are_asked_with_a_profile(file: Path, imago: Imago) -> None:
    file.write_text('[x]\nbootstrap = "127.0.0.1:1"\n[y]\nbootstrap = "no address"\n')
    told = {FILE_VARIABLE: str(file)}
    done = imago("--profile", "y", "topic", "list", **told)
    assert done.returncode == Exit.USAGE
    assert "no address" in done.stderr
    done = imago("topic", "list", IMAGO_PROFILE="x", **told)
    assert "127.0.0.1:1" in done.stderr
    done = imago("--profile", "y", "topic", "list", "--bootstrap", "127.0.0.1:2", **told)
    assert "127.0.0.1:2" in done.stderr, "what is said wins"
    exported = {"IMAGO_BOOTSTRAP": "127.0.0.1:3", **told}
    done = imago("--profile", "x", "topic", "list", **exported)
    assert "127.0.0.1:1" in done.stderr, "on the line it means more than what is exported"
    done = imago("topic", "list", IMAGO_PROFILE="x", **exported)
    assert "127.0.0.1:3" in done.stderr
    done = imago("--profile", "none", "topic", "list", **told)
    assert (done.returncode, "--profile none: is not in" in done.stderr) == (Exit.USAGE, True)


def test_a_file_that_is_not_there_is_named(tmp_path: Path, imago: Imago) -> None:
    done = imago("--profile", "x", "topic", "list", **{FILE_VARIABLE: str(tmp_path / "none")})
    assert done.returncode == Exit.USAGE
    assert "none: No such file" in done.stderr


def test_profiles_are_added_listed_and_chosen(imago: Imago, tmp_path: Path) -> None:
    kept = tmp_path / "new" / "profiles.toml"
    where = {FILE_VARIABLE: str(kept)}
    assert imago("profile", "list", **where).returncode == 0
    assert imago("profile", "add", "dev", **where).returncode == Exit.USAGE
    for name, address in (("dev", "127.0.0.1:1"), ("prod", "127.0.0.1:2")):
        done = imago("profile", "add", name, "--bootstrap", address, "--tls-ca-file", "a", **where)
        assert done.returncode == 0, done
    again = imago("profile", "add", "dev", "--bootstrap", "x:1", **where)
    assert (again.returncode, "is in" in again.stderr) == (Exit.USAGE, True)
    assert imago("profile", "use", "prd", **where).returncode == Exit.USAGE
    assert imago("profile", "use", "prod", **where).returncode == 0
    listed = json.loads(imago("profile", "list", "--json", **where).stdout)
    assert [(each["name"], each["chosen"]) for each in listed] == [("dev", False), ("prod", True)]
    shown = json.loads(imago("profile", "show", "dev", "--json", **where).stdout)
    file = str(Path("a").absolute())
    assert shown == {"name": "dev", "bootstrap": "127.0.0.1:1", "tls_ca_file": file}
    chosen = {**where, "IMAGO_TLS_CA": ""}
    assert "127.0.0.1:2: " in imago("topic", "list", **chosen).stderr, "the chosen one is meant"
    assert "127.0.0.1:1: " in imago("--profile", "dev", "topic", "list", **chosen).stderr
    kept.write_text("")
    assert "did you mean" not in imago("topic", "list", **where).stderr
    assert imago("topic", "list", **where).returncode == Exit.USAGE
    assert imago("profile", "list", **where).returncode == 0
