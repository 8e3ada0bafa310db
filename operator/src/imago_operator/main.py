"""The operator's process: which reconcilers there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_operator.reconcile import Context, Reconciler

RECONCILERS: Final[tuple[Callable[[Context], Reconciler], ...]] = ()
"""One line for each kind."""
