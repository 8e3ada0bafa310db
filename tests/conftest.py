"""What every test here goes by."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from imago_testing import leaks, small_limits, traces
from imago_testing.closing import modules_close_what_they_open, tests_close_what_they_open
from imago_testing.folders import FixtureFolders
from imago_testing.java import archives
from imago_testing.process_state import left_behind, process_state
from imago_testing.room import lacking_room_here
from imago_testing.sharing import Sharing, arranged

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from _pytest.config import Config
    from xdist.remote import Producer

# No example may fail for being slow: machines are, now and then. What is tried is the same in
# every run, so that a change is judged by what it changed; IMAGO_EXAMPLES=random tries others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.register_profile("few", deadline=None, derandomize=True, max_examples=5)
settings.load_profile(os.environ.get("IMAGO_EXAMPLES", "same"))

# The store and the replication in small pieces: `make test-all` runs their tests in both ways.
if os.environ.get("IMAGO_LIMITS") == "small":
    small_limits.install()


# Programs that a shell starts in its background ignore Ctrl-C, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


archives.use()
leaks.watch_commands()
__all__ = ["modules_close_what_they_open", "tests_close_what_they_open"]
OF_PROCESSES = ("processes", "zookeeper", "interop", "others")
"""Marks of tests that start processes of ours, which print, and write files."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to run the whole suite on a full disk: hundreds of tests would fail, none say why."""
    if session.config.getoption("dist", "no") == "loadgroup" and (cure := lacking_room_here()):
        pytest.exit(cure, returncode=pytest.ExitCode.USAGE_ERROR)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Config, log: Producer) -> Sharing | None:
    """Give workers whole groups of tests: --dist loadgroup."""
    return Sharing(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: Config, items: list[pytest.Item]) -> None:
    """On a worker: begin with what takes longest."""
    if hasattr(config, "workerinput"):
        items[:] = arranged(items)


gc.disable()
GC_THRESHOLDS = (5_000, 20, 20)
"""Modules and tests of the whole tree are millions of objects, which seldom need a look."""


def pytest_collection_finish() -> None:
    """Take what was collected out of every later garbage collection: a tenth of all work.

    While modules are loaded there is no garbage to speak of, so nobody looks for any.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


_folders = FixtureFolders()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the folders that a fixture for more than one test makes."""
    if fixturedef.scope == "function" or "tmp_path_factory" not in fixturedef.argnames:
        return (yield)
    base: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    before = set(base.iterdir())
    try:
        return (yield)
    finally:
        made = set(base.iterdir()) - before
        _folders.note(fixturedef, [each for each in made if not each.is_symlink()])


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[object]) -> None:
    """Note that a fixture has ended."""
    _folders.end(fixturedef)


@pytest.fixture(scope="module", autouse=True)
def folders_go_with_modules(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove what fixtures have left, after others have seen it."""
    yield
    _folders.remove(failed=bool(request.session.testsfailed))


@pytest.fixture(scope="module", autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Fail the last test of a module that leaves others another process than it found."""
    before = process_state()
    yield
    assert left_behind(before, process_state()) == [], "put it back: other modules come after it"


def _starts_processes(node: pytest.Item | pytest.Collector) -> bool:
    return any(map(node.get_closest_marker, OF_PROCESSES))


def _check_what_was_printed(node: pytest.Item | pytest.Collector, folders: Sequence[Path]) -> None:
    """Fail where processes have written a secret down, or have met what nobody thought of.

    Not for secrets where they are in other texts by chance, nor for traces that are wanted.
    """
    if node.get_closest_marker("common_passwords") is None:
        shown = {"a command line": "\n".join(leaks.commands).encode()}
        assert leaks.leaks(folders, shown) == []
    if node.get_closest_marker("traces_wanted") is None:
        found = traces.traces(folders)
        assert not found, "\n\n".join(found)


@pytest.fixture(scope="module", autouse=True)
def modules_print_nothing_wrong(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Look at what processes of a whole module have written; its last test fails."""
    if not _starts_processes(request.node):
        yield
        return
    base = tmp_path_factory.getbasetemp()
    before = set(base.iterdir())
    yield
    made = sorted(set(base.iterdir()) - before)
    try:
        folders = [each for each in made if not each.is_symlink()]
        _check_what_was_printed(request.node, folders)
    finally:
        leaks.commands.clear()  # what was started for this module


@pytest.fixture(autouse=True)
def processes_print_nothing_wrong(request: pytest.FixtureRequest) -> Iterator[None]:
    """Look at what a test's processes have written; its folder goes when it passed."""
    if not _starts_processes(request.node):
        yield
        return
    folder = request.getfixturevalue("tmp_path")
    yield
    _check_what_was_printed(request.node, [folder])
