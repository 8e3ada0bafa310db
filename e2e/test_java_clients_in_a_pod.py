"""Unmodified Java clients of both protocols work through the Services of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_e2e.clients import load

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver


def test_original_clients_send_and_receive(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    with load(whole, drivers, topic) as running:
        running.go_on(300)
        account.append(running.finish())
        running.unharmed()
