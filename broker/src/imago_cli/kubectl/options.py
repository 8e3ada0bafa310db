"""Options that all commands share; they are kubectl's own."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from imago_cli.line.declared import Argument, Option


class Format(StrEnum):
    """What is printed: tables for people, JSON for programs."""

    TABLE = "table"
    JSON = "json"


Namespace = Annotated[
    str | None,
    Option("--namespace", "-n", help="Namespace; that of the context unless given."),
]
Context = Annotated[str | None, Option("--context", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[
    str | None, Option("--kubeconfig", metavar="FILE", help="Path of a kubeconfig.")
]
Output = Annotated[Format, Option("--output", "-o", help="Output format.")]
Cluster = Annotated[str, Argument(help="Name of an ImagoCluster.", show_default=False)]
