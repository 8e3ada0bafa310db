"""The store is composed: parts get what they need once, and nobody else changes their state."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TypeGuard

import imago_log

PACKAGE = Path(imago_log.__file__).parent
BASES = {"Enum", "Exception", "Generic", "NamedTuple", "Protocol"}
FOREIGN = {
    "argtypes": "of a function of the C library",
    "last_metaq_id": "of the record builder, compiled, whose only owner is the appender",
    "next_offset": "of a queue's tail, compiled, which belongs to its queue",
    "next_position": "of a queue's tail",
    "positions": "of a queue's tail",
    "units": "of a queue's tail",
    "__cause__": "of an error that is raised later",
}
"""Attributes of classes that are not the store's, each with whose they are."""


def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def declared(tree: ast.Module) -> set[str]:
    """Return the attributes of the classes of a module."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for part in ast.walk(node):
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    found.add(part.target.id)
                elif is_stored(part) and is_self(part.value):
                    found.add(part.attr)
    return found


def is_stored(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def test_state_changes_only_in_the_module_of_its_class() -> None:
    """Give the class a method that says what happens, and call it."""
    found = []
    for path, tree in modules().items():
        own = declared(tree) | FOREIGN.keys()
        found += [
            f"{path.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}"
            for node in ast.walk(tree)
            if is_stored(node) and not is_self(node.value) and node.attr not in own
        ]
    assert found == []


def test_no_class_stands_on_a_class_of_another_module() -> None:
    """Hand a part in as an argument of the constructor. Errors, alone, come in families."""
    found = []
    for path, tree in modules().items():
        classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        for name, node in classes.items():
            bases = {ast.unparse(base).partition("[")[0] for base in node.bases}
            outside = {base for base in bases if not base.endswith("Error")}
            if not outside <= BASES | classes.keys():
                found.append(f"{path.relative_to(PACKAGE)}: {name} on {sorted(bases)}")
    assert found == []


def test_no_function_stands_in_for_a_part_that_comes_later() -> None:
    """A function that does nothing and takes only unnamed arguments is a slot to be filled."""
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and all(argument.arg.strip("_") == "" for argument in node.args.args)
        and all(
            isinstance(line, ast.Pass)
            or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            for line in node.body
        )
    ]
    assert found == []
