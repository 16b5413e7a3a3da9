# SPDX-License-Identifier: Apache-2.0
"""The script for bash. It needs nothing of the package bash-completion, and starts no program."""

from __future__ import annotations

from collections.abc import Iterable

from vmtailor.cli.shells.words import ARTEFACT_WORDS, IMAGE_WORDS, PROGRAM_FLAGS, Flag, Value, Words
from vmtailor.model.option import Suggests

_HEAD = """# SPDX-License-Identifier: Apache-2.0
# bash completion for vmtailor, by: vmtailor completions bash

# _vmtailor_flags VERB: sets REPLY to the options of a verb.
_vmtailor_flags() {
    case $1 in
@FLAGS@
    *) REPLY= ;;
    esac
}

# _vmtailor_value VERB OPTION: sets REPLY to what an option's value may be; fails for an option without a value.
_vmtailor_value() {
    case "$1 $2" in
@VALUES@
    *) return 1 ;;
    esac
}

# _vmtailor_argument VERB PLACE: sets REPLY to what an argument may be.
_vmtailor_argument() {
    case "$1 $2" in
@ARGUMENTS@
    *) REPLY=nothing ;;
    esac
}

# _vmtailor_names FOLDER: adds the names in a folder of the user's state that begin with $part, each with $behind.
_vmtailor_names() {
    local state=${XDG_STATE_HOME:-} path name
    [[ $state == /* ]] || state=$HOME/.local/state
    for path in "$state/vmtailor/$1"/*; do
        name=${path##*/}
        if [[ $name == "$part"* && $name =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*$ ]]; then COMPREPLY+=("$name$behind"); fi
    done
}

# _vmtailor_paths: adds files, or with -d folders, that begin with $part.
_vmtailor_paths() {
    local path
    compopt -o filenames 2>/dev/null
    while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen "$1" -- "$part")
}

# _vmtailor_references PREFIX...: adds prefixes of references, and paths, alone or behind a prefix that takes one.
_vmtailor_references() {
    local before=${part%%:*}:
    if [[ $part == *:* ]]; then
        part=${part#*:}
        case $before in oci: | oci-archive: | docker-archive: | rootfs: | disk:) _vmtailor_paths -f ;; esac
        COMPREPLY=("${COMPREPLY[@]/#/$before}")
    else
        _vmtailor_offer words "$@"
        if ((${#COMPREPLY[@]})); then compopt -o nospace 2>/dev/null; fi
        _vmtailor_paths -f
    fi
}

# _vmtailor_offer WHAT WORD...: adds what may stand for $part.
_vmtailor_offer() {
    local what=$1 behind= word before=
    shift
    case $what in
    words | list)
        if [[ $what == list ]]; then before=${part%"${part##*,}"}; fi
        for word; do
            if [[ $before$word == "$part"* ]]; then COMPREPLY+=("$before$word"); fi
        done
        if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=:,] ]]; then compopt -o nospace 2>/dev/null; fi
        ;;
    files) _vmtailor_paths -f ;;
    folders) _vmtailor_paths -d ;;
    machines) _vmtailor_names names ;;
    volumes) _vmtailor_names volumes ;;
    mounts)
        if [[ $part != *:* ]]; then
            compopt -o nospace 2>/dev/null
            if [[ $part == [/.~]* ]]; then _vmtailor_paths -f; else behind=: _vmtailor_names volumes; fi
        fi
        ;;
    copies)
        if [[ $part != *:* ]]; then
            behind=: _vmtailor_names names
            if ((${#COMPREPLY[@]})); then compopt -o nospace 2>/dev/null; else _vmtailor_paths -f; fi
        fi
        ;;
    images) _vmtailor_references @IMAGES@ ;;
    artefacts) _vmtailor_references @ARTEFACTS@ ;;
    esac
}

_vmtailor() {
    local rest=$COMP_LINE trimmed word words=() index IFS=$' \\t\\n'
    # Readline cuts words at = and : too; pieces without a blank between them are one word.
    for ((index = 0; index <= COMP_CWORD; index++)); do
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        word=${COMP_WORDS[index]}
        if ((index == 0)) || [[ $trimmed != "$rest" ]]; then words+=("$word"); else words[-1]+=$word; fi
        rest=${trimmed#"$word"}
    done

    local current=${words[-1]} verb= place=0 plain= taker= REPLY= letters
    for ((index = 1; index < ${#words[@]} - 1; index++)); do
        word=${words[index]}
        if [[ -n $taker ]]; then
            taker=
        elif [[ -z $plain && $word == -- ]]; then
            plain=yes
        elif [[ -z $plain && $word == --* ]]; then
            if [[ $word != *=* ]] && _vmtailor_value "$verb" "$word"; then taker=$word; fi
        elif [[ -z $plain && $word == -?* ]]; then
            for ((letters = 1; letters < ${#word}; letters++)); do
                if _vmtailor_value "$verb" "-${word:letters:1}"; then
                    if ((letters + 1 == ${#word})); then taker=-${word:letters:1}; fi
                    break
                fi
            done
        elif [[ -z $verb ]]; then
            verb=$word
        else
            place=$((place + 1))
            case $verb in @STRICT@) plain=yes ;; esac
        fi
    done

    COMPREPLY=()
    local part=$current
    if [[ -n $taker ]]; then
        _vmtailor_value "$verb" "$taker"
        _vmtailor_offer $REPLY
    elif [[ -z $plain && $current == --*=* ]]; then
        part=${current#*=}
        if _vmtailor_value "$verb" "${current%%=*}"; then _vmtailor_offer $REPLY; fi
        COMPREPLY=("${COMPREPLY[@]/#/${current%%=*}=}")
    elif [[ -z $plain && $current == -* ]]; then
        _vmtailor_flags "$verb"
        _vmtailor_offer words $REPLY
    elif [[ -z $verb ]]; then
        _vmtailor_offer words @VERBS@
    else
        _vmtailor_argument "$verb" "$place"
        _vmtailor_offer $REPLY
    fi

    # Readline replaces what stands behind the last = or : alone.
    local cut=
    if [[ $current == *[=:]* && $COMP_WORDBREAKS == *[=:]* ]]; then cut=${current%"${current##*[=:]}"}; fi
    for index in "${!COMPREPLY[@]}"; do COMPREPLY[index]=${COMPREPLY[index]#"$cut"}; done
}

complete -F _vmtailor vmtailor
"""


def script(verbs: Iterable[Words]) -> str:
    """Return the script."""
    verbs = tuple(verbs)
    parts = {
        "FLAGS": [_case("''", _names(PROGRAM_FLAGS)), *(_case(one.verb, _names(one.flags)) for one in verbs)],
        "VALUES": [line for one in verbs for line in _values(one)],
        "ARGUMENTS": [line for one in verbs for line in _arguments(one)],
        "STRICT": [" | ".join(one.verb for one in verbs if not one.mixed)],
        "VERBS": [" ".join(one.verb for one in verbs)],
        "IMAGES": [" ".join(IMAGE_WORDS)],
        "ARTEFACTS": [" ".join(ARTEFACT_WORDS)],
    }
    text = _HEAD
    for name, lines in parts.items():
        text = text.replace(f"@{name}@", "\n".join(lines))
    return text


def _case(pattern: str, reply: str) -> str:
    return f"    {pattern}) REPLY={_quoted(reply)} ;;"


def _names(flags: Iterable[Flag]) -> str:
    return " ".join(name for flag in flags for name in flag.names)


def _values(one: Words) -> list[str]:
    """Return a line for each kind of value, with all options that take it."""
    takers: dict[str, list[str]] = {}
    for flag in one.flags:
        if flag.value is not None:
            takers.setdefault(_offer(flag.value), []).extend(f'"{one.verb} {name}"' for name in flag.names)
    return [_case(" | ".join(names), offer) for offer, names in takers.items()]


def _arguments(one: Words) -> list[str]:
    return [
        _case(f'"{one.verb} "*' if argument.many else f'"{one.verb} {place}"', _offer(argument.value))
        for place, argument in enumerate(one.arguments)
    ]


def _offer(value: Value) -> str:
    if value.words:
        return " ".join(("list" if value.commas else "words", *value.words))
    return Suggests.NOTHING.value if value.kind is Suggests.NOTHING else value.kind.value


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
