# SPDX-License-Identifier: Apache-2.0
"""The completions for fish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmtailor.cli.shells.words import ARTEFACT_WORDS, IMAGE_WORDS, PROGRAM_FLAGS, Flag, Value, Words
from vmtailor.model.option import Suggests

_HEAD = """# SPDX-License-Identifier: Apache-2.0
# fish completion for vmtailor, by: vmtailor completions fish

# __vmtailor_takers VERB: prints the options of a verb that take a value.
function __vmtailor_takers
    switch "$argv[1]"
@TAKERS@
    end
end

# __vmtailor_place: prints the verb, and how many arguments stand behind it; then the word "plain" where options end.
function __vmtailor_place
    set -l words (commandline -opc)
    set -e words[1]
    set -l verb
    set -l place 0
    set -l taken no
    set -l plain
    set -l takers
    for word in $words
        if test $taken = yes
            set taken no
        else if test -z "$plain"; and test "$word" = --
            set plain plain
        else if test -z "$plain"; and string match -q -- '-*' $word
            if contains -- $word $takers
                set taken yes
            else if string match -qr -- '^-[^-].' $word; and contains -- -(string sub -s -1 -- $word) $takers
                set taken yes
            end
        else if test -z "$verb"
            set verb $word
            set takers (__vmtailor_takers $verb)
        else
            set place (math $place + 1)
            if contains -- $verb @STRICT@
                set plain plain
            end
        end
    end
    echo $verb
    echo $place
    echo $plain
end

# __vmtailor_verb VERB: whether options of this verb may follow; without a verb, those of the program.
function __vmtailor_verb
    set -l found (__vmtailor_place)
    test "$found[1]" = "$argv[1]"; and test -z "$found[3]"
end

# __vmtailor_argument VERB PLACE, or VERB PLACE more: whether this argument is next.
function __vmtailor_argument
    set -l found (__vmtailor_place)
    test "$found[1]" = "$argv[1]"; or return 1
    if test "$argv[3]" = more
        test $found[2] -ge $argv[2]
    else
        test $found[2] -eq $argv[2]
    end
end

# __vmtailor_names FOLDER: prints the names in a folder of the user's state.
function __vmtailor_names
    set -l state ~/.local/state
    if string match -q -- '/*' "$XDG_STATE_HOME"
        set state $XDG_STATE_HOME
    end
    for path in $state/vmtailor/$argv[1]/*
        string match -r -- '[A-Za-z0-9][A-Za-z0-9_.-]*$' $path
    end
end

function __vmtailor_machines
    __vmtailor_names names
end

function __vmtailor_volumes
    __vmtailor_names volumes
end

function __vmtailor_files
    __fish_complete_path (commandline -ct | string replace -r -- '^--[^=]*=' '')
end

function __vmtailor_folders
    __fish_complete_directories (commandline -ct | string replace -r -- '^--[^=]*=' '')
end

function __vmtailor_mounts
    string match -q -- '*:*' (commandline -ct); and return
    for name in (__vmtailor_names volumes)
        echo $name:
    end
    __vmtailor_files
end

function __vmtailor_copies
    string match -q -- '*:*' (commandline -ct); and return
    for name in (__vmtailor_names names)
        echo $name:
    end
    __vmtailor_files
end

# __vmtailor_references PREFIX...: prints prefixes of references, and paths, alone or behind a prefix that takes one.
function __vmtailor_references
    set -l word (commandline -ct | string replace -r -- '^--[^=]*=' '')
    set -l found (string match -r -- '^(oci|oci-archive|docker-archive|rootfs|disk):(.*)$' $word)
    if set -q found[3]
        string replace -r -- '^' $found[2]: (__fish_complete_path $found[3])
    else
        printf '%s\\n' $argv
        __vmtailor_files
    end
end

function __vmtailor_images
    __vmtailor_references @IMAGES@
end

function __vmtailor_artefacts
    __vmtailor_references @ARTEFACTS@
end

# __vmtailor_list WORD...: prints words, each behind those that are there, joined by commas.
function __vmtailor_list
    set -l before (commandline -ct | string replace -r -- '^--[^=]*=' '' | string match -r -- '^.*,')
    for word in $argv
        echo "$before$word"
    end
end

complete -c vmtailor -e
complete -c vmtailor -f
"""


def script(verbs: Iterable[Words]) -> str:
    """Return the completions."""
    verbs = tuple(verbs)
    parts = {
        "TAKERS": "\n".join(line for one in verbs for line in _takers(one)),
        "STRICT": " ".join(one.verb for one in verbs if not one.mixed),
        "IMAGES": " ".join(IMAGE_WORDS),
        "ARTEFACTS": " ".join(ARTEFACT_WORDS),
    }
    text = _HEAD
    for name, value in parts.items():
        text = text.replace(f"@{name}@", value)
    lines = [f"complete -c vmtailor -n '__vmtailor_verb' {_flag(flag)}" for flag in PROGRAM_FLAGS]
    for one in verbs:
        lines += ["", f"complete -c vmtailor -n '__vmtailor_argument \"\" 0' -a {one.verb} -d {_quoted(one.says)}"]
        lines += (f"complete -c vmtailor -n '__vmtailor_verb {one.verb}' {_flag(flag)}" for flag in one.flags)
        lines += _arguments(one)
    return text + "\n".join(lines) + "\n"


def _takers(one: Words) -> Iterator[str]:
    names = [name for flag in one.flags if flag.value is not None for name in flag.names]
    if names:
        yield f"        case {one.verb}"
        yield f"            string split ' ' -- {_quoted(' '.join(names))}"


def _arguments(one: Words) -> Iterator[str]:
    for place, argument in enumerate(one.arguments):
        offer = _offer(argument.value)
        if offer:
            more = " more" if argument.many else ""
            yield f"complete -c vmtailor -n '__vmtailor_argument {one.verb} {place}{more}' -a {offer}"


def _flag(flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name[:2] == "--" else f"-s {name[1:]}" for name in flag.names)
    if flag.value is None:
        return f"{names} -d {_quoted(flag.says)}"
    offer = _offer(flag.value)
    return f"{names} -x{f' -a {offer}' if offer else ''} -d {_quoted(flag.says)}"


def _offer(value: Value) -> str:
    if value.words and value.commas:
        return _quoted(f"(__vmtailor_list {' '.join(value.words)})")
    if value.words:
        return _quoted(" ".join(value.words))
    return "" if value.kind is Suggests.NOTHING else f"'(__vmtailor_{value.kind.value})'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
