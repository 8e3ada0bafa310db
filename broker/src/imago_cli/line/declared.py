"""What commands take, as the signatures of their functions say it.

    def create(topic: str, queues: Annotated[int | None, Option(least=1, help="…")] = None) -> None:

A parameter without a default is an argument of the line; every other one is an option called like
it, `--queues`, a flag also `--no-queues`, unless its `Option` has words of its own; one of a
dataclass stands for what its constructor takes. A signature is read when its command is called or
explained, and no sooner: what a command needs is loaded with it, and so are the types it names.
"""

from __future__ import annotations

import enum
import importlib
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from imago_cli.exits import CommandUsageError
from imago_cli.output import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

JSON: Final = "--json"
FORM: Final = ("--output", "-o")
"""What every command takes that has `--json`, which stands for most forms."""
_NUMBERS: Final[Mapping[type, str]] = {int: "a whole number", float: "a number"}
_NOTHING: Final = "''"
"""How a message shows a value that is empty, as a shell writes it."""


class Declared:
    """What a parameter's annotation says of it."""

    def __init__(
        self,
        *words: str,
        help: str = "",  # noqa: A002  as everybody calls it
        envvar: str = "",
        least: float | None = None,
        most: float | None = None,
        metavar: str = "",
        show_default: bool | str = True,
        hidden: bool = False,
        rest: bool = False,
    ) -> None:
        self.words, self.help, self.envvar, self.metavar = words, help, envvar, metavar
        self.least, self.most, self.show_default = least, most, show_default
        self.hidden, self.rest = hidden, rest


class Option(Declared):
    """A parameter that is given by a word of its own, such as `--queues 8`."""


class Argument(Declared):
    """A parameter that is given by its place; with `rest`, all that follows as it stands."""


class Parameter:
    """One parameter of a command's function, with its words on a line."""

    def __init__(
        self,
        name: str,
        kind: Any,
        declared: Declared,
        *,
        required: bool = False,
        default: Any = None,
    ) -> None:
        self.name, self.declared, self.required, self.default = name, declared, required, default
        self.is_list = get_origin(kind) is list
        self.kind: Any = get_args(kind)[0] if self.is_list else kind
        self.is_option = isinstance(declared, Option)
        self.is_flag = self.is_option and kind is bool
        self.choices: tuple[str, ...] = ()
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            self.choices = tuple(str(one.value) for one in self.kind)
        words = declared.words
        if self.is_option and not words:
            long = name.replace("_", "-")
            words = (f"--{long}/--no-{long}" if self.is_flag else f"--{long}",)
        on = [word.partition("/")[0] for word in words]
        self.words: tuple[str, ...] = tuple(on)
        self.off: str = next((word.partition("/")[2] for word in words), "")
        """The word that turns a flag off; "": none does."""

    @property
    def label(self) -> str:
        """What errors call it."""
        return self.words[0] if self.is_option else self.name

    @property
    def kind_name(self) -> str:
        """What the page calls its values."""
        if self.declared.metavar:
            return self.declared.metavar
        return f"<{'|'.join(self.choices) or self.kind.__name__.lower()}>"

    def value_of(self, text: str) -> Any:
        """Return what a word on the line means; UsageError: nothing."""
        if self.choices:
            if text not in self.choices:
                known = ", ".join(self.choices)
                raise CommandUsageError(f"{self.label} {text or _NOTHING}: must be one of {known}")
            return self.kind(text)
        if self.kind in _NUMBERS:
            return self._number_of(text)
        return text if self.kind is str else Path(text)

    def _number_of(self, text: str) -> float:
        least, most = self.declared.least, self.declared.most
        try:
            number: float = self.kind(text)
            fits = (least is None or number >= least) and (most is None or number <= most)
        except ValueError:
            fits, number = False, 0
        if not fits or number != number:
            bounds = "" if least is None else f", {least} or more"
            if most is not None:
                bounds = f", {least} to {most}"
            must = f"must be {_NUMBERS[self.kind]}{bounds}"
            raise CommandUsageError(f"{self.label} {text or _NOTHING}: {must}")
        return number


class Command:
    """A command: a function, or where one is found once it is called: `module:function`."""

    def __init__(self, function: Callable[..., object] | str, help: str | None = None) -> None:  # noqa: A002
        self._function, self._help = function, help

    @property
    def function(self) -> Callable[..., object]:
        """The function, loaded."""
        if isinstance(self._function, str):
            module, _, name = self._function.partition(":")
            found: Callable[..., object] = getattr(importlib.import_module(module), name)
            return found
        return self._function

    def call(self, values: Mapping[str, Any]) -> None:
        """Call the function with what a line says."""
        given, function = dict(values), self.function
        for name, kind in _hints(function).items():
            if parts := _parts(kind):
                given[name] = kind(**{part: given.pop(part) for part in parts})
        function(**given)

    @property
    def help(self) -> str:
        """What it does, a paragraph a line."""
        return in_paragraphs(self._help or self.function.__doc__ or "")

    @property
    def parameters(self) -> Sequence[Parameter]:
        """What it takes, in the order of its page."""
        found = parameters_of(self.function)
        words = {word for one in found for word in one.words}
        if JSON in words and not words & {*FORM}:
            found.append(_form())
        return found


class CommandGroup:
    """Commands below one word, which need not be loaded before one is named."""

    def __init__(
        self,
        help: str,  # noqa: A002
        before: Callable[..., object] | None = None,
        *,
        epilog: str = "",
    ) -> None:
        self.help, self.epilog, self._before = in_paragraphs(help), epilog, before
        self._commands: dict[str, Command | CommandGroup] = {}

    def add(self, name: str, what: Callable[..., object] | str | Command | CommandGroup) -> None:
        """Add a command, by its function or where that is (`module:function`), or a group."""
        is_made = isinstance(what, Command | CommandGroup)
        self._commands[name] = what if is_made else Command(what)  # type: ignore[assignment, arg-type]

    @property
    def commands(self) -> Mapping[str, Command | CommandGroup]:
        """All of them by name, in the order in which they were added."""
        return self._commands

    @property
    def parameters(self) -> Sequence[Parameter]:
        """What stands before the command's name."""
        return parameters_of(self._before) if self._before else []

    def begin(self, values: Mapping[str, Any]) -> None:
        """Do what comes before whatever command."""
        if self._before is not None:
            self._before(**values)


def parameters_of(function: Any) -> list[Parameter]:
    """Return what a function takes, in its order."""
    code, hints = function.__code__, _hints(function)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    last = function.__defaults__ or ()
    defaults = dict(zip(names[code.co_argcount - len(last) : code.co_argcount], last, strict=True))
    defaults |= function.__kwdefaults__ or {}
    found = []
    for name in names:
        if name == "self":
            continue
        hint = hints[name]
        if _parts(hint):
            found += parameters_of(hint.__init__)
            continue
        kind, *said = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        if NoneType in get_args(kind):
            kind = next(one for one in get_args(kind) if one is not NoneType)
        required = name not in defaults
        declared = said[0] if said else Argument() if required else Option()
        default = defaults.get(name)
        found.append(Parameter(name, kind, declared, required=required, default=default))
    return found


def _hints(function: Any) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def _parts(kind: Any) -> Sequence[str]:
    """Return the fields of a dataclass; none: it is something else."""
    return tuple(getattr(kind, "__dataclass_fields__", ()))


def in_paragraphs(text: str) -> str:
    """Join the lines of each paragraph: terminals have widths of their own."""
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n")).strip()


def all_commands(
    node: Command | CommandGroup, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield every command at or below a node, with the words that lead to it."""
    if isinstance(node, Command):
        yield path, node
        return
    for name, inner in node.commands.items():
        yield from all_commands(inner, (*path, name))


def _form() -> Parameter:
    found = Parameter("", str, Option(*FORM, help="In which form to print."))
    found.choices = FORMS
    return found
