"""A modelled cluster as it is at one moment, to go on from there more than once."""

from __future__ import annotations

import itertools
from copy import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from imago_testing.operated.cluster import Brokers, OperatedCluster
from imago_testing.operated.things import Disk

if TYPE_CHECKING:
    from imago_testing.kubernetes.fake_api_server import FakeApiServer
    from imago_testing.operated.world import ClusterWorld


def with_new_operator(made: OperatedCluster) -> OperatedCluster:
    """Return a cluster in which all is as it is in `made`, but for the operator: it starts there.

    What happens in one of the two happens in that one alone.
    """
    found = copy(made)
    found.kubernetes, found.world = _server(made.kubernetes), _world(made.world)
    found.kubernetes.changed.append(found._take_in)
    found.brokers = Brokers(found.world, epoch=made.brokers.epoch)
    found.made_of = dict(made.made_of)
    found.errors, found.enqueued = [], []
    found.start()
    return found


def _server(made: FakeApiServer) -> FakeApiServer:
    """Return a server without faults and listeners; it replaces objects, and changes none."""
    fresh = type(made)()
    return replace(
        fresh,
        objects=dict(made.objects),
        version=made.version,
        calls=list(made.calls),
        _owned={
            place: {manager: set(paths) for manager, paths in held.items()}
            for place, held in made._owned.items()
        },
        _past=list(made._past),
        _ids=itertools.count(next(made._ids)),
    )


def _world(made: ClusterWorld) -> ClusterWorld:
    return replace(made, **{each.name: _own(getattr(made, each.name)) for each in fields(made)})


def _own(value: Any) -> Any:
    """Return what may be changed as a copy; values of the operator are frozen."""
    if isinstance(value, dict):
        return {key: _own(part) for key, part in value.items()}
    if isinstance(value, list | set):
        return type(value)(value)
    if isinstance(value, itertools.count):
        return itertools.count(next(value))
    return replace(value) if isinstance(value, Disk) else value
