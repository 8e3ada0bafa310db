"""ImagoUser: look, plan, do, say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.certificates.state import CERTIFICATE, KEY, TRUSTED, authority_of
from imago_operator.contents import certifying, tokens, user_acts, users
from imago_operator.contents.belonging import claimant_of, cluster_of
from imago_operator.contents.certifying import UserSigner
from imago_operator.contents.conditions import ContentRefusal
from imago_operator.contents.connecting import (
    checks_rights,
    entries_of,
    has_certificates,
    may_have,
    overlap_of,
    secret_that_signs,
    super_users,
)
from imago_operator.contents.leaving import Leaving
from imago_operator.contents.values import SeenSecret
from imago_operator.errors import RetryError
from imago_operator.issuing import making
from imago_operator.issuing.writing import end_of, whole_days
from imago_operator.model import names
from imago_operator.model.secret_data import coded, decoded
from imago_operator.observing.observed import owner_uid
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, content_name, problem_of, status_from
from imago_operator.reconcilers.recent import Listings
from imago_operator.reconcilers.waiting import WaitingObjects
from imago_operator.spec.kinds import API_VERSION, USER
from imago_operator.spec.user import AuthenticationType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_operator.contents.belonging import Manifest, Place
    from imago_operator.contents.users import UserLook, UserPlan
    from imago_operator.contents.values import IssuedToken, SeenUser
    from imago_operator.reconcile import Context
    from imago_operator.spec.user import UserSpec, UserToken

LISTING_S: Final = 5.0
SOON_S: Final = 2.0
SILENT_S: Final = 10.0
REFUSED_S: Final = 30.0
SOURCE_S: Final = 30.0
"""Secrets that people keep passwords in are not watched: nobody has to give that right."""


class UserReconciler:
    """Brings one user one step on."""

    kind: Final = USER.name

    def __init__(self, context: Context, new_password: Callable[[], str]) -> None:
        """`new_password`: one that nobody has had and nobody can guess."""
        self._context, self._lookup = context, ClaimLookup(context)
        self._new_password = new_password
        self._attendant = Attendant(USER, context, self._lookup)
        self._voice = self._attendant.voice
        self._lists: Listings[Mapping[str, SeenUser]] = Listings(context.now, age_s=LISTING_S)
        self._waiting = WaitingObjects(context.enqueue)

    async def reconcile(self, key: ObjectKey) -> float | None:
        self._waiting.forget(key)
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Manifest) -> UserLook:
        spec, me = USER.read(manifest), claimant_of(manifest)
        name, place = content_name(manifest, "userName"), cluster_of(manifest)
        refused = await self._lookup.refusal(manifest, spec.cluster_ref)
        cluster = None if refused else await self._lookup.cluster(place)
        rivals = await self._lookup.rivals(USER, me, manifest)
        if cluster is not None:
            rivals = tuple(one for one in rivals if may_have(cluster, name, one.namespace))
            if not me.deleting and not may_have(cluster, name, me.namespace):
                refused, cluster = _reserved(name, place), None
        listing = None if refused else await self._users(place, name)
        look = users.UserLook(
            me=me,
            spec=spec,
            name=name,
            status=status_from(USER, manifest),
            refusal=refused,
            rivals=rivals,
            listed=listing is not None,
            user=listing.get(name) if listing else None,
        )
        if cluster is None or me.deleting:
            return look
        signer, unsigned = await self._signer(cluster, spec)
        return replace(
            look,
            signer=signer,
            unsigned=unsigned,
            secret=await self._secret(me.namespace, look.secret_name, me.uid),
            given=await self._given(me.namespace, spec),
            is_super=name in super_users(cluster),
            checked=checks_rights(cluster),
            connection=entries_of(cluster, await self._trusted(cluster)),
        )

    async def _users(self, place: Place, name: str) -> Mapping[str, SeenUser] | None:
        """Return the users of a cluster; None: no broker could tell."""

        async def ask() -> Mapping[str, SeenUser]:
            reached = await self._lookup.reached(place)
            return await reached.contents.users(reached.brokers)

        try:
            return await self._lists.get(place, name, ask)
        except RetryError:
            return None

    async def _secret(self, namespace: str, name: str, uid: str) -> SeenSecret | None:
        found = await self._context.kube.get("Secret", namespace, name)
        if found is None:
            return None
        return SeenSecret(
            version=str(found["metadata"].get("resourceVersion", "")),
            ours=owner_uid(found) == uid,
            data=decoded(found),
            notes={
                name: str(text)
                for name, text in (found["metadata"].get("annotations") or {}).items()
                if name.startswith(f"{names.GROUP}/")
            },
        )

    async def _signer(self, cluster: Manifest, spec: UserSpec) -> tuple[UserSigner | None, str]:
        """Return who signs for a user with a certificate, or why nobody does."""
        if spec.authentication.type is not AuthenticationType.TLS:
            return None, ""
        name, metadata = secret_that_signs(cluster), cluster["metadata"]
        if name is None:
            text = f"Nobody signs for clients: set spec.tls.clientsCa of {metadata['name']}."
            return None, text
        found = authority_of(await self._context.kube.get("Secret", metadata["namespace"], name))
        if found is None:
            return None, f"Secret {name} has no tls.crt and tls.key of an authority."
        return UserSigner(authority=found, overlap=overlap_of(cluster)), ""

    async def _trusted(self, cluster: Manifest) -> str:
        """Return the authorities that sign for the brokers; empty: they have no certificates.

        cert-manager writes them beside the members' certificates alone.
        """
        if not has_certificates(cluster):
            return ""
        metadata = cluster["metadata"]
        shards = cluster["status"].get("shards") if "status" in cluster else None
        first = min((int(shard["id"]) for shard in shards or ()), default=0)
        name = names.certificate(metadata["name"], first)
        found = await self._context.kube.get("Secret", metadata["namespace"], name)
        return decoded(found or {}).get(TRUSTED, "")

    async def _given(self, namespace: str, spec: UserSpec) -> str | None:
        reference = spec.authentication.password_secret_ref
        if reference is None:
            return None
        found = await self._context.kube.get("Secret", namespace, reference.name)
        return decoded(found or {}).get(reference.key, "").strip() or None

    async def _work(self, manifest: Manifest, look: UserLook) -> float | None:
        key = ObjectKey(self.kind, look.me.namespace, look.me.name)
        self._waiting.note(cluster_of(manifest), key, answered=look.listed)
        now, limit = self._context.now(), self._context.release_after_s
        planned = users.plan(look, now, fresh=self._new_password(), release_after_s=limit)
        if planned.record is not None:
            await self._voice.write(manifest, planned.record)
            return 0.0
        if await self._voice.settle(manifest, planned):
            return None
        version, notes = look.secret.version if look.secret else None, look.notes
        token: UserToken | None = None
        problem: ContentRefusal | None = None
        for act in planned.acts:
            self._context.leading()
            if isinstance(act, user_acts.WriteSecret):
                version, notes = await self._write(manifest, look, act)
                continue
            made: list[IssuedToken] = []
            problem = await problem_of(self._have_done(look.name, cluster_of(manifest), act, made))
            if problem is not None:
                break
            if isinstance(act, user_acts.IssueToken):
                token = await self._hand_out(manifest, look, act, made[0])
        if problem is None and user_acts.DeleteUser() in planned.acts:
            gone = Leaving("Deleted", "It is deleted on all shards.", release=True)
            await self._voice.release(manifest, gone)
            return None
        after = users.status_of(
            look,
            planned,
            self._context.now(),
            version=version,
            notes=notes,
            token=token,
            problem=problem,
        )
        await self._voice.say(manifest, look.status, after)
        return self._look_again(look, planned, problem)

    async def _have_done(
        self, name: str, place: Place, act: user_acts.BrokerAct, made: list[IssuedToken]
    ) -> None:
        """Have brokers do it; `made` gets a token that they made."""
        reached = await self._lookup.reached(place)
        epoch, contents = await reached.epoch(), reached.contents
        match act:
            case user_acts.PutUser(body):
                await contents.put_user(reached.brokers, name, body, operator_epoch=epoch)
            case user_acts.IssueToken(body):
                made.append(
                    await contents.make_token(reached.brokers, name, body, operator_epoch=epoch)
                )
            case user_acts.RevokeToken(number):
                await contents.revoke_token(reached.brokers, name, number, operator_epoch=epoch)
            case user_acts.DeleteUser():
                await contents.delete_user(reached.brokers, name, operator_epoch=epoch)
        self._lists.note_change(place, name)

    async def _hand_out(
        self, manifest: Manifest, look: UserLook, act: user_acts.IssueToken, made: IssuedToken
    ) -> UserToken:
        """Write a new token into the Secret; return what the status says of it."""
        data = {**act.data, tokens.TOKEN: made.token}
        await self._context.kube.apply(secret_of(manifest, look, data, {}))
        return tokens.token_of(made, self._context.now())

    async def _write(
        self, manifest: Manifest, look: UserLook, act: user_acts.WriteSecret
    ) -> tuple[str, Mapping[str, str]]:
        """Apply the Secret for clients; return its version, and what is noted in it."""
        data, notes = act.data, act.notes
        if act.issues:
            certificate, notes = self._certificate(look)
            data = {**data, **certificate}
        made = await self._context.kube.apply(secret_of(manifest, look, data, notes))
        return str(made["metadata"].get("resourceVersion", "")), notes

    def _certificate(self, look: UserLook) -> tuple[dict[str, str], dict[str, str]]:
        """Return a new certificate of a user with its key, and what is noted beside them."""
        assert look.signer is not None, "it was planned"
        authority = look.signer.authority.data
        signer = making.IssuedPair(authority[CERTIFICATE], authority[KEY])
        days, now = whole_days(look.spec.authentication.validity), self._context.now()
        made = making.client_certificate(look.name, making.Validity(now, days), signer)
        data = {CERTIFICATE: made.certificate + signer.certificate, KEY: made.key}
        return data, certifying.notes_of(look.name, look.signer, now, end_of(now, days))

    def _look_again(
        self, look: UserLook, planned: UserPlan, problem: ContentRefusal | None
    ) -> float | None:
        if problem is not None:
            return REFUSED_S if problem.reason == "BrokerRejected" else SILENT_S
        if planned.acts:
            return SOON_S
        if look.refusal is not None:
            return None if look.me.deleting else REFUSED_S
        if planned.applies is None and not look.me.deleting:
            return REFUSED_S if look.listed else SILENT_S
        if not look.listed:
            return SILENT_S
        if look.spec.authentication.password_secret_ref is not None:
            return SOURCE_S
        due = users.next_look(look)
        return max(1.0, (due - self._context.now()).total_seconds()) if due else None


def _reserved(name: str, place: Place) -> ContentRefusal:
    text = (
        f"{name} is a super user of {'/'.join(place)}: an ImagoUser of namespace {place[0]} alone"
        " may say who that is."
    )
    return ContentRefusal("NamespaceNotAllowed", text)


def secret_of(
    manifest: Manifest, look: UserLook, data: Mapping[str, str], notes: Mapping[str, str]
) -> dict[str, object]:
    """Return the Secret with what clients of a user need; it goes with its resource."""
    added = look.spec.secret_template.metadata
    ours = {
        "app.kubernetes.io/name": "imago",
        "app.kubernetes.io/part-of": "imago",
        "app.kubernetes.io/managed-by": names.MANAGER,
        names.CLUSTER_LABEL: look.spec.cluster_ref.name,
        names.USER_LABEL: look.me.name,
    }
    metadata: dict[str, object] = {
        "name": look.secret_name,
        "namespace": look.me.namespace,
        "labels": {**added.labels, **ours},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": manifest["kind"],
                "name": look.me.name,
                "uid": look.me.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    if annotations := {**added.annotations, **notes}:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": coded(data),
    }
