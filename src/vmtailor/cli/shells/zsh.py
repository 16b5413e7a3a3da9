# SPDX-License-Identifier: Apache-2.0
"""The function for zsh, by its own `_arguments`."""

from __future__ import annotations

from collections.abc import Iterable

from vmtailor.cli.shells.words import ARTEFACT_WORDS, IMAGE_WORDS, PROGRAM_FLAGS, Argument, Flag, Value, Words
from vmtailor.model.option import Suggests

_HEAD = """#compdef vmtailor
# SPDX-License-Identifier: Apache-2.0
# zsh completion for vmtailor, by: vmtailor completions zsh

# _vmtailor_names FOLDER: sets reply to the names in a folder of the user's state.
_vmtailor_names() {
    local state=${XDG_STATE_HOME:-}
    [[ $state == /* ]] || state=$HOME/.local/state
    reply=($state/vmtailor/$1/[A-Za-z0-9]*(N:t))
}

_vmtailor_machines() {
    local -a reply
    _vmtailor_names names
    compadd -a "$@" reply
}

_vmtailor_volumes() {
    local -a reply
    _vmtailor_names volumes
    compadd -a "$@" reply
}

_vmtailor_mounts() {
    local -a reply
    if compset -P 1 '*:'; then return 1; fi
    _vmtailor_names volumes
    compadd -S : -a reply
    _files
}

_vmtailor_copies() {
    local -a reply
    if compset -P 1 '*:'; then return 1; fi
    _vmtailor_names names
    compadd -S : -a reply
    _files
}

# _vmtailor_references PREFIX...: prefixes of references, and paths, alone or behind a prefix that takes one.
_vmtailor_references() {
    if compset -P 1 '(oci|oci-archive|docker-archive|rootfs|disk):'; then
        _files
    else
        compadd -S '' -- "$@"
        _files
    fi
}

_vmtailor_images() {
    _vmtailor_references @IMAGES@
}

_vmtailor_artefacts() {
    _vmtailor_references @ARTEFACTS@
}

# _vmtailor_list WORD...: words that may be joined by commas.
_vmtailor_list() {
    compset -P '*,'
    compadd -S '' -- "$@"
}

_vmtailor() {
    local curcontext=$curcontext state line
    typeset -A opt_args
    local -a verbs
    verbs=(
@VERBS@
    )
    _arguments -C -A '-*' \\
@PROGRAM@
        '1: :->verb' '*:: :->rest' && return 0
    case $state in
    verb) _describe -t verbs verb verbs ;;
    rest)
        curcontext=${curcontext%:*:*}:vmtailor-$words[1]:
        case $words[1] in
@CASES@
        esac
        ;;
    esac
}

if [[ $funcstack[1] == _vmtailor ]]; then _vmtailor "$@"; else compdef _vmtailor vmtailor; fi
"""


def script(verbs: Iterable[Words]) -> str:
    """Return the function's file."""
    verbs = tuple(verbs)
    parts = {
        "VERBS": "\n".join(f"        {_quoted(f'{one.verb}:{_spoken(one.says)}')}" for one in verbs),
        "PROGRAM": "\n".join(f"        {_flag(flag)} \\" for flag in PROGRAM_FLAGS),
        "CASES": "\n".join(_case(one) for one in verbs),
        "IMAGES": " ".join(IMAGE_WORDS),
        "ARTEFACTS": " ".join(ARTEFACT_WORDS),
    }
    text = _HEAD
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    return text


def _case(one: Words) -> str:
    specs = [_flag(flag) for flag in one.flags]
    specs += [_argument(argument, place) for place, argument in enumerate(one.arguments, 1)]
    start = "_arguments -s -S" if one.mixed else "_arguments -s -S -A '-*'"
    joined = "".join(f" \\\n            {spec}" for spec in specs)
    return f"        {one.verb})\n            {start}{joined} ;;"


def _flag(flag: Flag) -> str:
    """Return the words by which `_arguments` knows an option."""
    says = _spoken(flag.says).replace("[", "\\[").replace("]", "\\]")
    value = "" if flag.value is None else f": :{_action(flag.value)}"
    names = [name if flag.value is None or name[:2] != "--" else f"{name}=" for name in flag.names]
    if flag.value is not None:
        names = [name if name[:2] == "--" else f"{name}+" for name in names]
    before = "*" if flag.many else f"({' '.join(flag.names)})"
    return " ".join(_quoted(f"{before}{name}[{says}]{value}") for name in names)


def _argument(argument: Argument, place: int) -> str:
    name = argument.name.lower().replace(":", "\\:")
    return _quoted(f"{'*' if argument.many else place}:{name}:{_action(argument.value)}")


def _action(value: Value) -> str:
    if value.words and value.commas:
        return f" _vmtailor_list {' '.join(value.words)}"
    if value.words and any(word[-1] in "=:," for word in value.words):
        return f"{{compadd -S '' -- {' '.join(value.words)}}}"
    if value.words:
        return f"({' '.join(value.words)})"
    return {
        Suggests.NOTHING: " ",
        Suggests.FILES: "_files",
        Suggests.FOLDERS: "_files -/",
    }.get(value.kind, f"_vmtailor_{value.kind.value}")


def _spoken(text: str) -> str:
    """Return a help text as `_arguments` and `_describe` take it: a colon would end it."""
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
