"""Reads the words behind a command: what options say, and what stands by its place."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from imago_cli.exits import CommandUsageError
from imago_cli.output import choose_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_cli.line.declared import Parameter

HELP: Final = ("--help", "-h")
HELP_HELP: Final = "Show this message and exit."


class Line:
    """The words behind a command, sorted: what options say, and what stands by its place."""

    def __init__(
        self, parameters: Sequence[Parameter], words: Sequence[str], *, only_first: bool = False
    ) -> None:
        self._parameters = parameters
        self._only_first = only_first or any(one.declared.rest for one in parameters)
        self._options = {word: one for one in parameters for word in (*one.words, one.off) if word}
        self.given: dict[str, list[Any]] = {}
        self.placed: list[str] = []
        self.wants_help = False
        self._sort(iter(words))

    def _sort(self, words: Iterator[str]) -> None:
        for word in words:
            if word == "--":
                self.placed += words
            elif word.startswith("--"):
                name, equals, value = word.partition("=")
                self._take(name, value if equals else None, words)
            elif word.startswith("-") and word != "-":
                self._take_short(word, words)
            else:
                self.placed.append(word)
                if self._only_first:
                    self.placed += words

    def _take(self, name: str, value: str | None, words: Iterator[str]) -> None:
        """Note an option, whose value is in its word or else the next one."""
        option = self._options.get(name)
        if option is None and name not in HELP:
            close = near(name, [*self._options, HELP[0]])
            possible = f" (Possible options: {', '.join(close)})" if close else ""
            raise CommandUsageError(f"No such option: {name}{possible}")
        if option is None or option.is_flag:
            if value is not None:
                raise CommandUsageError(f"Option {name!r} does not take a value")
            if option is None:
                self.wants_help = True
            else:
                self.given[option.name] = [name != option.off]
            return
        if value is None and (value := next(words, None)) is None:
            raise CommandUsageError(f"Option {name!r} requires an argument")
        self.given.setdefault(option.name, []).append(value)

    def _take_short(self, word: str, words: Iterator[str]) -> None:
        """Note options of one letter each, the last of which may have its value behind it."""
        for at, letter in enumerate(word[1:], 2):
            option = self._options.get(f"-{letter}")
            takes_value = option is not None and not option.is_flag
            self._take(f"-{letter}", word[at:] if takes_value and word[at:] else None, words)
            if takes_value:
                return

    def values(self, taken: int = 0) -> dict[str, Any]:
        """Return what the function gets: of the line, the environment, or by default."""
        places, found = iter(self.placed[taken:]), dict[str, Any]()
        missing = []
        for one in self._parameters:
            said = self.given.get(one.name, [])
            if not one.is_option:
                said = list(islice(places, None if one.is_list else 1))
            if not said and (told := os.environ.get(one.declared.envvar, "")):
                said = [told]
            if not said and one.required:
                missing.append(f"Missing {'option' if one.is_option else 'argument'} {one.label!r}")
            found[one.name] = _value(one, said)
        if missing:
            raise CommandUsageError(missing[0])
        if more := list(places):
            raise CommandUsageError(f"Got unexpected extra argument(s) ({' '.join(more)})")
        return _in_form(found, self._parameters)


def _value(one: Parameter, said: Sequence[Any]) -> Any:
    if not said:
        return one.default
    if one.is_flag:
        return said[-1]
    return [one.value_of(text) for text in said] if one.is_list else one.value_of(said[-1])


def _in_form(values: dict[str, Any], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Choose the form of what will be printed: those that are not for people go with `--json`."""
    form = values.pop("", None)
    if form is not None:
        choose_form(form)
        as_json = next(one.name for one in parameters if "--json" in one.words)
        values[as_json] = form not in ("table", "wide")
    return values


def near(word: str, known: Iterable[str]) -> list[str]:
    """Return what there is of nearly this name."""
    import difflib

    return difflib.get_close_matches(word, list(known))
