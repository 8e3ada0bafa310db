"""Drive every fuzz target with changed golden frames, and stop at the first that fails.

    PYTHONPATH=tests/support:. python -m tests.fuzz.driver --seconds 60

A module of this folder with ``TARGETS`` (name -> function of bytes) and ``SEEDS`` (name -> golden
inputs) takes part by its name in MODULES. A target raises for what must never happen; an input on
which it returns something new (not None) joins the corpus, so that the search goes deeper. A
failure prints the input in hexadecimal and the command that runs it again.
"""

from __future__ import annotations

import argparse
import importlib
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from tests.fuzz.counting import record, refuse_again
from tests.fuzz.mutation import mutated

from imago_wire import hot

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

MODULES: Final = (
    "tests.fuzz.text",
    "tests.fuzz.record",
    "tests.fuzz.remoting",
    "tests.fuzz.replication",
    "tests.fuzz.sql92",
    "tests.fuzz.access",
    "tests.fuzz.grpc",
)
CPU_S_MAX: Final = 1.0
"""An input that keeps a decoder busy for longer is a failure: a peer could send it."""
MEMORY_BYTES_MAX: Final = 4 << 30
CORPUS_MAX: Final = 2000
CORPUS_BYTES_MAX: Final = 2048
"""Larger inputs find nothing more and are slow."""
ROUND: Final = 200
"""Inputs between two looks at the clock."""


class Target(NamedTuple):
    """A function that takes any bytes, and what to start from."""

    name: str
    run: Callable[[bytes], Hashable]
    seeds: Sequence[bytes]


class TooLongError(Exception):
    """A decoder was busy with one input for longer than CPU_S_MAX."""


def load_targets(wanted: Sequence[str]) -> list[Target]:
    """Return the targets of all modules, or those whose name starts with one of the wanted."""
    found = []
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name, run in module.TARGETS.items():
            if not wanted or name.startswith(tuple(wanted)):
                found.append(Target(name, run, module.SEEDS[name]))
    return found


def fuzz(target: Target, rng: random.Random, *, until: float, executions_max: int) -> int:
    """Run changed inputs until the time or the number is reached; return how many ran."""
    corpus = list(target.seeds)
    seen: set[Hashable] = {None}
    for data in corpus:
        seen.add(run_one(target, data))
    executed = len(corpus)
    while executed < executions_max and time.monotonic() < until:
        for _ in range(min(ROUND, executions_max - executed)):
            data = mutated(rng, corpus)
            result = run_one(target, data)
            if result not in seen and len(corpus) < CORPUS_MAX and len(data) <= CORPUS_BYTES_MAX:
                seen.add(result)
                corpus.append(data)
            executed += 1
    return executed


def run_one(target: Target, data: bytes) -> Hashable:
    """Run one input under the limit of processor time; a failure ends the program."""
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        return target.run(data)
    except BaseException as error:
        fail(target, data, error)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def fail(target: Target, data: bytes, error: BaseException) -> NoReturn:
    """Print the failing input and end with 1."""
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    traceback.print_exception(error)
    print(f"\n{target.name} failed on these {len(data)} bytes:\n{data.hex()}", file=sys.stderr)
    again = f"python -m tests.fuzz.driver --target {target.name} --input {data.hex()[:200]}"
    print(f"again: {again}{'…' if len(data) > 100 else ''}", file=sys.stderr)
    raise SystemExit(1)


def _too_long(_number: int, _frame: object) -> NoReturn:
    raise TooLongError(f"busy for more than {CPU_S_MAX} s of processor time")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument("--executions", type=int, default=sys.maxsize, help="at most, per target")
    parser.add_argument("--target", action="append", default=[], help="start of a name; repeatable")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--input", help="run this one input, in hexadecimal")
    parser.add_argument("--record", type=Path, help="add the counts to this file")
    return parser.parse_args()


def main() -> int:
    """Fuzz the targets one after the other; return 0, or end with 1 at a failure."""
    arguments = _arguments()
    signal.signal(signal.SIGVTALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, resource.RLIM_INFINITY))
    targets = load_targets(arguments.target)
    if not targets:
        print("no target has such a name", file=sys.stderr)
        return 2
    if arguments.input is not None:
        for target in targets:
            print(f"{target.name}: {run_one(target, bytes.fromhex(arguments.input))}")
        return 0
    return _fuzz_all(targets, arguments)


def _fuzz_all(targets: Sequence[Target], arguments: Any) -> int:
    seed = random.SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    refuse_again(arguments.record, seed, [target.name for target in targets])
    print(f"hot modules: {'compiled' if hot.COMPILED else 'plain Python'}; seed {seed}")
    counts, began = dict[str, int](), time.monotonic()
    for target in targets:
        start = time.monotonic()
        executed = fuzz(
            target,
            random.Random(f"{seed}/{target.name}"),
            until=start + arguments.seconds / len(targets),
            executions_max=arguments.executions,
        )
        rate = executed / max(time.monotonic() - start, 1e-6)
        print(f"{target.name:28} {executed:>10,} inputs {rate:>10,.0f}/s", flush=True)
        counts[target.name] = executed
    print(f"{sum(counts.values()):,} inputs, no failure")
    if arguments.record:
        took = time.monotonic() - began
        total = record(arguments.record, seed=seed, inputs=counts, seconds=took)
        print(f"{total:,} inputs in {arguments.record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
