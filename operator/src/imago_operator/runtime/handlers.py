"""The only module that imports kopf: watches bring keys into the loop, nothing else is used.

Handlers that see every event keep no state on objects: no finalizer, no annotation, no patch.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

import kopf

from imago_operator.model import names
from imago_operator.runtime.watched import CHILDREN, OWN, Watched, key_of, owners_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from imago_operator.kube.credentials import Credentials
    from imago_operator.reconcile import ObjectKey

DELETED: Final = "DELETED"
REQUEST_S: Final = 30.0
CONNECT_S: Final = 10.0
INACTIVITY_S: Final = 70.0
PAGE: Final = 500
KOPF_LOGS: Final = {"kopf": logging.INFO, "kopf.objects": logging.WARNING}
"""Its debug lines are about each event, with whole objects."""
TOKEN_KEPT: Final = timedelta(minutes=10)
"""After this a token in a file is read again."""


class Work(Protocol):
    """Where keys go: the loop."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that somebody works on."""

    def seen(self, key: ObjectKey, *, gone: bool) -> None:
        """An object of ours is there, changed or is gone."""

    def enqueue(self, key: ObjectKey) -> None:
        """Have an object reconciled soon."""


async def watch(
    work: Work,
    credentials: Credentials,
    *,
    namespaces: Sequence[str],
    kinds: Collection[str],
    ready: asyncio.Event,
    began: Callable[[], None],
) -> None:
    """Watch everything until cancelled; raises when a watch ends for good.

    `namespaces`: empty means all. `kinds`: those to watch, by name. `ready` is set once it works.
    `began`: called when kopf has taken over the process's signals, to take them back.
    """
    for name, level in KOPF_LOGS.items():
        logging.getLogger(name).setLevel(level)
    ours = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry(work, credentials, [w for w in (*OWN, *CHILDREN) if w.kind in kinds]),
        settings=settings(scan=not namespaces),
        # kopf would ask for the name of the process's user, which need not have one.
        identity=names.MANAGER,  # type: ignore[arg-type]  # text, under a name that kopf keeps
        standalone=True,
        clusterwide=not namespaces,
        namespaces=list(namespaces),
        ready_flag=ready,
    )
    began()
    await kopf.run_tasks(tasks, ignored=ours)


def settings(*, scan: bool) -> kopf.OperatorSettings:
    """Return kopf's settings; without `scan` it needs no right on the whole cluster."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.posting.loggers = False
    found.peering.standalone = True
    found.scanning.disabled = not scan
    # Not ours: kopf takes its own off everything, because none of its handlers needs it.
    found.persistence.finalizer = f"{names.GROUP}/kopf"
    found.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    found.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)
    found.networking.request_timeout = REQUEST_S
    found.networking.connect_timeout = CONNECT_S
    found.watching.inactivity_timeout = INACTIVITY_S
    found.watching.chunk_size = PAGE
    found.execution.default_backoff = 15
    for watched in CHILDREN:
        if watched.labels:
            place = (watched.group, watched.version, watched.plural)
            found.watching.label_selectors[place] = watched.labels
    return found


def registry(
    work: Work, credentials: Credentials, watched: Iterable[Watched]
) -> kopf.OperatorRegistry:
    """Return kopf's handlers: one for each kind, and the login."""
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return connection(credentials)

    for one in watched:
        if one in OWN:
            _watch_own(found, work, one)
        else:
            _watch_child(found, work, one)
    return found


def connection(credentials: Credentials) -> kopf.ConnectionInfo:
    """Return our way to the API server in kopf's words."""
    expires = None
    if credentials.token_file is not None:
        expires = datetime.now(UTC) + TOKEN_KEPT
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_data=_encoded(credentials.ca),
        insecure=not credentials.verify,
        certificate_data=_encoded(credentials.certificate),
        private_key_data=_encoded(credentials.key),
        token=credentials.token(),
        default_namespace=credentials.namespace,
        expiration=expires,
    )


def _encoded(pem: bytes | None) -> bytes | None:
    return base64.b64encode(pem) if pem else None


def _watch_own(found: kopf.OperatorRegistry, work: Work, watched: Watched) -> None:
    @kopf.on.event(watched.group, watched.version, watched.plural, registry=found)
    async def changed(event: kopf.RawEvent, **_: Any) -> None:
        manifest = event["object"]
        work.seen(key_of(watched.kind, manifest), gone=event["type"] == DELETED)
        for key in owners_of(manifest):
            work.enqueue(key)


def _watch_child(found: kopf.OperatorRegistry, work: Work, watched: Watched) -> None:
    @kopf.on.event(watched.group, watched.version, watched.plural, registry=found)
    async def changed(event: kopf.RawEvent, **_: Any) -> None:
        for key in owners_of(event["object"]):
            work.enqueue(key)
