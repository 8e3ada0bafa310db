"""What headers and bodies are: frozen values whose fields are named when they are made.

They are dataclasses, so `fields` and `replace` know them, but without code of their own: two
hundred classes with six generated functions each were half of what a broker's start took. What the
functions would do is written here once, over the list of fields.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from imago_wire.errors import WrongKindError

_V = TypeVar("_V", bound="Value")
_T = TypeVar("_T")


class Lazy(Generic[_T]):
    """A class's attribute that is computed when the class is first asked for it."""

    def __init__(self, name: str, compute: Any) -> None:
        self._name, self._compute = name, compute

    def __get__(self, _: object, cls: type) -> Any:
        found = self._compute(cls)
        setattr(cls, self._name, found)
        return found


class Value:
    """Base of all: equal to another of its class with equal fields, and hashed by them."""

    __slots__ = ()
    _setters: ClassVar[dict[str, tuple[Any, Any, Any]]] = {}
    """By field: sets the slot, default, default factory."""

    def __init__(self, **given: Any) -> None:
        for name, (set_field, default, factory) in self._setters.items():
            if name in given:
                set_field(self, given.pop(name))
            elif default is not MISSING:
                set_field(self, default)
            elif factory is not MISSING:
                set_field(self, factory())
            else:
                raise WrongKindError(f"{type(self).__name__}() needs {name!r}")
        if given:
            raise WrongKindError(f"{type(self).__name__}() has no {next(iter(given))!r}")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._setters)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        told = (f"{name}={getattr(self, name)!r}" for name in self._setters)
        return f"{type(self).__qualname__}({', '.join(told)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self) -> tuple[Any, ...]:
        return self._values()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for (set_field, *_), value in zip(self._setters.values(), state, strict=True):
            set_field(self, value)


def value_class(cls: type[_V]) -> type[_V]:
    """Make a class of values out of a list of fields."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the dataclass makes one, at some length
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    made._setters = {
        spec.name: (getattr(made, spec.name).__set__, spec.default, spec.default_factory)
        for spec in fields(made)
    }
    return made  # type: ignore[no-any-return]  # dataclass() gave back the same kind of class
