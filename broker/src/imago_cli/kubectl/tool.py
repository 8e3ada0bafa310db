"""The caller's own kubectl, as a process: what it may do, this may do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from imago_cli.exits import CommandError
from imago_cli.kubectl.options import Context, Kubeconfig, Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VARIABLE: Final = "KUBECTL"
"""Names another kubectl than the first one on the path."""
SECONDS_MAX: Final = 60.0
CLUSTERS: Final = "imagoclusters.imago.dev"
TOPICS: Final = "imagotopics.imago.dev"
GROUPS: Final = "imagoconsumergroups.imago.dev"
USERS: Final = "imagousers.imago.dev"
REBALANCES: Final = "imagorebalances.imago.dev"
PIPELINES: Final = "imagopipelines.imago.dev"
CURES: Final = (
    (
        "the server doesn't have a resource type",
        "the operator's resources are not known here: helm install imago charts/imago",
    ),
    ("(Forbidden)", "ask for the right that is named, or take another --context"),
    ("Unable to connect to the server", "check --context and --kubeconfig"),
    ("context was not found", "`kubectl config get-contexts` lists them"),
    ('context "', "`kubectl config get-contexts` lists them"),
    ("no such file", "check --kubeconfig and KUBECONFIG"),
    ("was refused", "check --context and --kubeconfig"),
    ("Please enter Username", "no cluster is configured: check --context and --kubeconfig"),
)


LISTED_BY: Final = {
    CLUSTERS: "kubectl imago status -A",
    USERS: "kubectl get imu -A",
    REBALANCES: "kubectl get imr -A",
}
"""What shows the objects of a kind; `kubectl get KIND` does of any other."""
_MISSING = re.compile(r'\(NotFound\): (\S+) "[^"]*" not found')
_STRICT = re.compile(r"strict decoding error: (.+)\Z", re.DOTALL)
"""What the API server says of fields that there are not, behind the whole object."""
_FIELD = re.compile(r'unknown field "([^"]*)"')
_KIND = re.compile(r'(?:\bkind\\*":\\*"|handled as a )(\w+)')
_LOGGED = re.compile(r"[EWIF]\d{4} [\d:.]+ ")
"""A line of kubectl's own log, which it prints beside what it says."""


class KubectlError(CommandError):
    """kubectl itself refused: its own words, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with the options that the caller gave: a command that takes it has them."""

    namespace: Namespace = None
    context: Context = None
    kubeconfig: Kubeconfig = None

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object; KubectlError when it is not there."""
        return self._json("get", kind, name, "-o", "json")

    def all_of(self, kind: str, *, labels: str = "", everywhere: bool = False) -> list[Any]:
        """Return all objects of a kind in the namespace, or in all of them."""
        chosen = ["-l", labels] if labels else []
        scope = ["--all-namespaces"] if everywhere else []
        found: list[Any] = self._json("get", kind, *chosen, *scope, "-o", "json")["items"]
        return found

    def annotate(self, kind: str, name: str, notes: Mapping[str, str | None]) -> None:
        """Set annotations; None takes one away."""
        words = [f"{key}-" if value is None else f"{key}={value}" for key, value in notes.items()]
        self.call("annotate", kind, name, "--overwrite", *words)

    def dry_run(self, path: str) -> list[Any]:
        """Return the objects of a file as the server would store them, admission included."""
        answer = self._json("apply", "--dry-run=server", "-f", path, "-o", "json")
        found: list[Any] = answer["items"] if answer["kind"] == "List" else [answer]
        return found

    def execute(self, pod: str, container: str, command: Sequence[str]) -> str:
        """Run a program in a pod and return what it printed."""
        return self.call("exec", pod, "-c", container, "--", *command)

    def call(self, *words: str) -> str:
        """Run kubectl and return what it printed; KubectlError in its own words."""
        done = self._run(words)
        if done.returncode != 0:
            raise refusal(done.stderr or done.stdout, words[0])
        return done.stdout

    def stream(self, *words: str) -> int:
        """Run kubectl with this process's output as its own, until it ends; return its code."""
        with _started(), suppress(KeyboardInterrupt):
            return subprocess.call(self._command(words), stdin=subprocess.DEVNULL)  # noqa: S603  as below
        return 0

    def _json(self, *words: str) -> dict[str, Any]:
        text = self.call(*words)
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise KubectlError(f"kubectl {words[0]} answers no JSON object: {text[:200]!r}")
        return value

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        with _started():
            try:
                return subprocess.run(  # noqa: S603  the caller's own kubectl, no shell
                    self._command(words),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=SECONDS_MAX,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                text = f"kubectl {words[0]} has not answered for {SECONDS_MAX:.0f} s"
                raise KubectlError(text, cure="check --context and --kubeconfig") from error

    def _command(self, words: Sequence[str]) -> list[str]:
        return [_program(), *self._options(), *words]

    def _options(self) -> list[str]:
        given = {
            "--namespace": self.namespace,
            "--context": self.context,
            "--kubeconfig": self.kubeconfig,
        }
        return [f"{name}={value}" for name, value in given.items() if value is not None]


def _program() -> str:
    return os.environ.get(VARIABLE) or "kubectl"


@contextmanager
def _started() -> Iterator[None]:
    """Say in a sentence that there is no kubectl to run."""
    try:
        yield
    except FileNotFoundError as error:
        cure = f"put it on the path, or name it in {VARIABLE}"
        raise KubectlError(f"there is no {_program()}", cure=cure) from error
    except OSError as error:
        raise KubectlError(f"{_program()} cannot be run: {error.strerror}") from error


def refusal(said: str, what: str) -> KubectlError:
    """Return what kubectl said as an error, with the cure where one is known."""
    lines = [line for line in said.strip().splitlines() if not _LOGGED.match(line)]
    text = "\n".join(lines or said.strip().splitlines()[-1:])
    if strict := _STRICT.search(text):
        return KubectlError(strict[1], cure=_of_field(text, strict[1]))
    cure = next((cure for mark, cure in CURES if mark in text), "")
    if missing := _MISSING.search(text):
        listed = LISTED_BY.get(missing[1], f"kubectl get {missing[1]}")
        cure = f"`{listed}` shows those that are there; check --namespace"
    text = text.removeprefix("error: ").removeprefix("Error in configuration: ")
    return KubectlError(text or f"kubectl {what} failed without a word", cure=cure)


def _of_field(text: str, problem: str) -> str:
    """Return what lists the fields beside one that there is not."""
    kind, field = _KIND.search(text), _FIELD.search(problem)
    if kind is None or field is None:
        return "docs/reference/crds.md lists the fields"
    place = re.sub(r"\[\d+\]", "", ".".join((kind[1].lower(), *field[1].split(".")[:-1])))
    return f"`kubectl explain {place}` lists the fields there"
