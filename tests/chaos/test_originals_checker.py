"""The check of what became of original clients' messages sees what it is there for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_testing.chaos.originals import Copy, Promise, Queues, faults, missed
from imago_testing.interop.streams import body_of, origin

if TYPE_CHECKING:
    from collections.abc import Mapping

A = [body_of("a", number) for number in range(6)]
PLAIN = Promise(name="a", acknowledged=frozenset(A[:4]), tried=frozenset(A))
SOUND: Queues = {
    "0-0": [Copy(A[0], 10), Copy(A[2], 12)],
    "1-3": [Copy(A[1], 11), Copy(A[3], 13), Copy(A[4], 14)],
}


def kinds(
    found: Queues, promise: Promise = PLAIN, shown: Mapping[str, list[bytes]] = {}
) -> list[str]:
    metaq = {name: [copy.body for copy in queue] for name, queue in found.items()}
    return [each.split()[0] for each in faults([promise], found, {**metaq, **shown})]


def test_what_failed_may_be_there_or_not() -> None:
    assert kinds(SOUND) == []


def test_a_body_tells_whose_it_is() -> None:
    assert origin(A[3]) == ("a", 3)
    assert len({len(body) for body in A}) == 1


def test_an_acknowledged_message_that_is_not_there() -> None:
    assert kinds(SOUND | {"0-0": SOUND["0-0"][:1]}) == ["LOST"]


def test_a_message_that_nobody_sent() -> None:
    changed = Copy(A[2][:-1] + b"!", 12)
    assert kinds(SOUND | {"0-0": [SOUND["0-0"][0], changed]}) == ["LOST", "PHANTOM"]


def test_two_copies_of_one_send_are_a_fault_of_the_broker_also_where_clients_try_again() -> None:
    twice = SOUND | {"1-3": [*SOUND["1-3"], Copy(A[4], 14)]}
    assert kinds(twice) == ["DUPLICATED"]
    assert kinds(twice, replace(PLAIN, retries=True)) == ["DUPLICATED"]


def test_two_copies_of_two_sends_are_the_clients_own_doing() -> None:
    for copy in (Copy(A[4], 14), Copy(A[0], 15)):
        twice = SOUND | {"0-1": [copy]}
        assert kinds(twice) == ["DUPLICATED"]
        assert kinds(twice, replace(PLAIN, retries=True)) == []


def test_messages_that_changed_places() -> None:
    swapped = SOUND | {"0-0": SOUND["0-0"][::-1]}
    assert kinds(swapped) == ["REORDERED"]
    assert kinds(swapped, replace(PLAIN, ordered=False)) == []


def test_protocols_that_show_different_messages() -> None:
    assert kinds(SOUND, shown={"0-0": [A[0]]}) == ["DISAGREED"]
    assert kinds(SOUND, shown={"0-7": []}) == ["DISAGREED"]


def test_a_consumer_that_was_not_given_something() -> None:
    assert missed([PLAIN], [*A[:3], A[0]]) == [f"MISSED {('a', 3)}"]
