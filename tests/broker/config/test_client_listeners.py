"""`broker.listeners` as it is written, and what is refused of it."""

from __future__ import annotations

import pytest

from imago_broker.config import ConfigError, load
from imago_broker.config.sections.client_listeners import LISTENERS_MAX, hosts_of

BOTH = "out host=mq.example namesrv=15000 metaq=15001:31000 rocketmq=15002:31010 grpc=15003"


def test_a_listener_says_its_ports_and_what_clients_are_told() -> None:
    (out, lb) = load(environ={"IMAGO__BROKER__LISTENERS": f"{BOTH}, lb rocketmq=15012"}).listeners
    assert (out.name, out.host, out.tls) == ("out", "mq.example", False)
    assert out.ports == {"namesrv": 15000, "metaq": 15001, "rocketmq": 15002, "grpc": 15003}
    assert out.told == {"metaq": 31000, "rocketmq": 31010}
    assert (lb.name, lb.host, lb.ports) == ("lb", "", {"rocketmq": 15012})


@pytest.mark.parametrize(
    ("listeners", "more", "said"),
    [
        (["Out rocketmq=1"], "", "must be written NAME"),
        ([""], "", "must be written NAME"),
        (["out"], "", "out has no port"),
        (["out rocketmq"], "", "'rocketmq', must be written"),
        (["out rocketmq=70000"], "", "70000 is no port"),
        (["out rocketmq=1 rocketmq=2"], "", "'rocketmq=2', must be written"),
        (["out rocketmq=1 host="], "", "'host=', must be written"),
        (["out rocketmq=1 fast=2"], "", "'fast=2', must be written"),
        (["out namesrv=1"], "", "namesrv tells of rocketmq"),
        (["out rocketmq=1", "out metaq=2"], "", "out is there twice"),
        (["out rocketmq=10911"], "", "every listener needs a port of its own"),
        (["out rocketmq=1 tls"], "", "out needs a certificate"),
        (["out metaq=1"], "[metaq]\nenabled = false", "does not serve"),
        (["out rocketmq=1"], "[metaq]\nlistener = 'out'", "with a port for metaq"),
        (
            [f"l{number} rocketmq={number}" for number in range(LISTENERS_MAX + 1)],
            "",
            f"at most {LISTENERS_MAX}",
        ),
    ],
)
def test_what_is_wrong_is_refused(listeners: list[str], more: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(f"[broker]\nlisteners = {listeners}\n{more}\n")


def test_a_file_names_hosts_line_by_line() -> None:
    assert hosts_of("out=203.0.113.5\n\n lb=a.example \nrest\nnone=\n") == {
        "out": "203.0.113.5",
        "lb": "a.example",
    }
