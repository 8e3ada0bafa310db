"""Becomes a program that ends with its parent: `python -I -S child.py PARENT_PID PROGRAM ARG…`.

A supervisor that is killed cannot stop what it started. On Linux the kernel does it: the signal
asked for here survives the change of program. Run as a script, so it imports nothing of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Ask for the signal, make sure that the parent is still there, become the program."""
    parent, program = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it died before we asked
    os.execvp(program[0], program)  # noqa: S606  the supervisor's own command line


if __name__ == "__main__":
    main(sys.argv[1:])
