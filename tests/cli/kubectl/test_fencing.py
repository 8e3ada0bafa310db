"""`kubectl imago fence` and `unfence`: the annotation that the operator reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.model import names
from imago_testing.kubernetes.on_call import CLUSTERS, cluster_of_three

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube


@pytest.fixture(autouse=True)
def _cluster(kube: Kube) -> None:
    cluster_of_three(kube)


def written(kube: Kube, *words: str, before: str = "") -> str:
    """Return what stands in the annotation after a command; empty: it is taken away."""
    one: dict[str, Any] = kube.objects[CLUSTERS][0]
    one["metadata"]["annotations"] = {names.FENCED: before} if before else {}
    done = kube.run(*words)
    assert done.code == 0, done.err
    call = kube.calls()[-1]
    assert call[0] == "annotate"
    said = next(word for word in call if word.startswith(names.FENCED))
    return "" if said == f"{names.FENCED}-" else said.removeprefix(f"{names.FENCED}=")


def test_members_are_added_and_taken_away(kube: Kube) -> None:
    assert written(kube, "fence", "demo", "demo-s0-1") == "demo-s0-1"
    both = written(kube, "fence", "demo", "demo-s1-0", before="demo-s0-1")
    assert both == "demo-s0-1,demo-s1-0"
    assert written(kube, "fence", "demo", "demo-s0-1", "--anyway", before=both) == (
        "demo-s1-0,demo-s0-1!"
    )
    assert written(kube, "unfence", "demo", "demo-s0-1", before="demo-s1-0,demo-s0-1!") == (
        "demo-s1-0"
    )
    assert written(kube, "unfence", "demo", before=both) == ""
    assert written(kube, "fence", "demo", "--all") == "*"


def test_of_a_whole_cluster_one_is_let_go(kube: Kube) -> None:
    left = written(kube, "unfence", "demo", "demo-s0-1", before="*")
    assert left == "demo-s0-0!,demo-s1-0!"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("fence", "demo"), 2, "name pods, or --all"),
        (("fence", "demo", "demo-s0-1", "--all"), 2, "name pods, or --all"),
        (("fence", "demo", "demo-s7-0"), 1, "demo-s7-0: no broker pods of demo"),
        (("unfence", "demo", "demo-s0-1"), 1, "demo-s0-1: not fenced"),
    ],
)
def test_what_makes_no_sense_is_refused(
    kube: Kube, words: tuple[str, ...], code: int, said: str
) -> None:
    done = kube.run(*words)
    assert done.code == code
    assert said in done.err
    assert not [call for call in kube.calls() if call[0] == "annotate"]
