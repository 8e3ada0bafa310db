"""Credentials of which a part is missing are refused, with the key and the cure."""

from __future__ import annotations

import tomllib

import pytest

from imago_broker.config import ConfigError
from imago_broker.config.loading import from_tree

CERTIFICATE = "[tls]\ncertificate_file = 'c'\nkey_file = 'k'\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tls]\nreplication = 'enforcing'", r"tls\.replication = enforcing: needs a certificate"),
        ("[tls]\nreplication = 'permissive'", r"tls\.replication = permissive: needs a cert"),
        ("[tls]\ncalls = 'enforcing'", r"tls\.calls = enforcing: needs a certificate"),
        ("[zookeeper]\nuser = 'u'", r"zookeeper\.user: goes with zookeeper\.password_file"),
        ("[zookeeper]\npassword_file = 'p'", r"zookeeper\.user: goes with"),
        ("[zookeeper]\nuser = 'a:b'\npassword_file = 'p'", r"must have no colon"),
        ("[zookeeper]\ntls_ca_file = 'a'\ntls_key_file = 'k'", r"tls_certificate_file: goes with"),
        (
            "[zookeeper]\ntls_certificate_file = 'c'\ntls_key_file = 'k'",
            r"needs authorities: set zookeeper\.tls_ca_file",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_tree(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        CERTIFICATE + "replication = 'enforcing'\ncalls = 'enforcing'",
        "[zookeeper]\ntls_ca_file = 'a'",
        "[zookeeper]\ntls_ca_file = 'a'\ntls_certificate_file = 'c'\ntls_key_file = 'k'\n"
        "user = 'u'\npassword_file = 'p'\nprotect = false",
    ],
)
def test_what_is_whole_is_taken(text: str) -> None:
    from_tree(tomllib.loads(text))
