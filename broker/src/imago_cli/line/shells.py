"""Scripts by which shells ask `imago` what a line may become."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from imago_cli.exits import CommandError
from imago_cli.output import print_line

_BASH: Final = """\
_imago_complete() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" found
    found=$(COMP_LINE="$line" COMP_LAST="$2" _IMAGO_COMPLETE=bash "$1") || compopt +o default
    COMPREPLY=($found)
}
complete -o default -F _imago_complete imago
"""
_ZSH: Final = """\
#compdef imago
_imago() {
    local text files; local -a found
    text="$(COMP_LINE="${words[1,$CURRENT]}" _IMAGO_COMPLETE=zsh "${words[1]}")"; files=$?
    found=("${(@f)text}")
    if [[ -n "$text" ]]; then _describe imago found; elif (( files == 0 )); then _files; fi
}
if [[ "$funcstack[1]" == _imago ]]; then _imago "$@"; else compdef _imago imago; fi
"""
_FISH: Final = """\
function __imago_complete
    set -l found (env COMP_LINE=(commandline -cp | string collect) _IMAGO_COMPLETE=fish imago)
    set -l files $status
    if set -q found[1]
        printf '%s\\n' $found
    else if test $files -eq 0
        __fish_complete_path (commandline -ct)
    end
end
complete -c imago -f -a '(__imago_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_PLACES: Final = {
    "bash": ".bash_completions/imago.sh",
    "zsh": ".zfunc/_imago",
    "fish": ".config/fish/completions/imago.fish",
}
"""Where in a home folder each one goes."""
_STARTS: Final = {
    "bash": (".bashrc", "source '{path}'"),
    "zsh": (".zshrc", "fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit"),
}
"""What a shell that starts has to do, and the file that says so; fish finds it by itself."""


def show() -> None:
    """Print the script of the shell that called."""
    print_line(SCRIPTS[_shell()].rstrip())


def install() -> None:
    """Put the script of the shell that called where it is found."""
    shell = _shell()
    path = Path.home() / _PLACES[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPTS[shell], encoding="utf-8")
    if shell in _STARTS:
        name, line = _STARTS[shell]
        start, line = Path.home() / name, line.format(path=path)
        before = start.read_text(encoding="utf-8") if start.exists() else ""
        if line not in before.splitlines():
            end = "" if before.endswith("\n") or not before else "\n"
            start.write_text(f"{before}{end}{line}\n", encoding="utf-8")
    print_line(f"{shell} completion is in {path}: it begins with the next shell")


def _shell() -> str:
    """Return which shell called us; CommandError: none for which there is a script."""
    try:
        parent = Path(f"/proc/{os.getppid()}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        parent = ""
    said = Path(os.environ.get("SHELL", "")).name
    shell = next((one for one in (parent, said) if one in SCRIPTS), None)
    if shell is None:
        raise CommandError(
            f"there is no completion for the shell {said or parent!r}",
            cure=f"SHELL names one of {', '.join(SCRIPTS)}",
        )
    return shell
