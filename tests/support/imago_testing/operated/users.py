"""ImagoUsers on a server and brokers in memory."""

from __future__ import annotations

import base64
from itertools import count
from typing import Any

from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.user import UserReconciler
from imago_testing.kubernetes.custom_resources import USER, manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort


class Users(Stage):
    """A stage with a cluster that checks rights, brokers, and users on it."""

    def __init__(self) -> None:
        self.brokers = FakeContentsPort()
        super().__init__(self.brokers)
        authorization = {"type": "Simple", "superUsers": ["root"]}
        self.kube.put(manifest("ImagoCluster", {"spec.authorization": authorization}))
        self.numbers = count(1)
        self.brokers.now_ms = lambda: round(self.kube.now.timestamp() * 1000)
        self.start()

    def start(self) -> None:
        """Start an operator that remembers nothing."""
        self.reconciler = UserReconciler(
            self.context(), lambda: f"made-up-password-{next(self.numbers)}"
        )

    def apply(self, name: str = "ann", **spec: Any) -> dict[str, Any]:
        said = {f"spec.{key}": value for key, value in ({"userName": name} | spec).items()}
        return self.kube.put(manifest(USER, said, name=name))

    async def rest(self, name: str = "ann", namespace: str = "mq") -> float | None:
        return await self.settle(self.reconciler, name, namespace=namespace)

    async def look(self, name: str = "ann") -> float | None:
        return await self.reconciler.reconcile(ObjectKey(USER, "mq", name))

    def ready(self, name: str = "ann", namespace: str = "mq") -> tuple[str, str] | None:
        return self.kube.condition(USER, name, namespace=namespace)

    def asked(self, what: str) -> list[tuple[Any, ...]]:
        return [call for call in self.brokers.calls if call[0] == what]

    def secret(self, name: str = "ann") -> dict[str, str] | None:
        found = self.kube.objects.get(("Secret", "mq", name))
        if found is None:
            return None
        return {key: base64.b64decode(value).decode() for key, value in found["data"].items()}

    def put_secret(self, name: str, **entries: str) -> None:
        data = {key: base64.b64encode(text.encode()).decode() for key, text in entries.items()}
        made = {"kind": "Secret", "metadata": {"name": name}, "data": data}
        self.kube.put({"apiVersion": "v1", **made})

    def tokens(self) -> tuple[str, ...]:
        """Return the numbers of ann's tokens that count, the newest last."""
        user = self.brokers.users_by_name.get("ann")
        now_ms = self.brokers.now_ms()
        return tuple(
            token.number for token in (user.tokens if user else ()) if token.expires_ms > now_ms
        )

    def counting(self) -> tuple[str, ...]:
        """Return the passwords of ann that count, the newest first."""
        return self.brokers.passwords.get("ann", ())
