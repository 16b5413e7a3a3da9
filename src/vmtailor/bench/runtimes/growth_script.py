# SPDX-License-Identifier: Apache-2.0
"""A shell script for a guest that starts idle instances of a runtime one after the other, and notes the guest's memory
at some numbers of them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from vmtailor.bench.model.growth_notes import ANSWERED, CURRENT, LOOK, STARTED, STOPPED
from vmtailor.bench.model.instance import BENCH, CALL_BACK, InstanceSpec, Limits, Volume
from vmtailor.bench.runtimes.description import Description
from vmtailor.bench.runtimes.guest_runtime import ROUNDS, Guest, must, script

#: The file with what the script saw.
SEEN = "/run/vmtailor-bench.growth"
#: Stands for the number of an instance in the part of the script that is run for each. No shell needs it quoted.
_NUMBER = "@@"
#: Seconds of the guest's time: until an instance is there, until all have answered, and for what was put off.
_THERE_S, _ANSWER_S, _SETTLE_S = 60, 60, 5

_TOOLS = f"""\
look() {{
  sync; echo 3 >/proc/sys/vm/drop_caches; sleep {_SETTLE_S}
  echo "{LOOK} $1" >>{SEEN}; cat /proc/meminfo >>{SEEN}
  for at in /proc/[0-9]*; do
    comm=; read -r comm <$at/comm
    [ "$comm" != bench ] || sed -n s/^0:://p $at/cgroup
  done 2>/dev/null | sort -u | while read -r path; do
    [ ! -e /sys/fs/cgroup$path/memory.current ] || echo "{CURRENT} $(cat /sys/fs/cgroup$path/memory.current)"
  done >>{SEEN}
}}
there() {{
  tries=0
  until [ -e {ROUNDS}/$1 ]; do
    tries=$((tries + 1)); [ $tries -lt {10 * _THERE_S} ] || return 1
    sleep 0.1
  done
}}
answered() {{
  told=0; number=0
  while [ $number -lt $1 ]; do : >{ROUNDS}/$number.ask; number=$((number + 1)); done
  tries=0
  until [ $told -eq $1 ] || [ $tries -ge {_ANSWER_S} ]; do
    sleep 1; tries=$((tries + 1)); told=0; number=0
    while [ $number -lt $1 ]; do
      [ ! -e {ROUNDS}/$number.told ] || told=$((told + 1))
      number=$((number + 1))
    done
  done
  echo "{ANSWERED} $told" >>{SEEN}
}}
"""


#: A command that fails ends the shell of its instance.
_ALONE = 'fail() { echo "$*" >&2; exit 1; }'


def growing(one: Description, looks: Sequence[int], most: int, tag: str, tree: str, ours: str) -> str:
    """Return a shell script that starts up to `most` idle instances of a runtime, each when the one before is there,
    until one is not. It notes the memory before the first one and at each number in `looks`. `tag`, `tree`, `ours`: as
    for `in_guest`."""
    guest = Guest(one, tag, entered=one.limits == "cgroup")
    spec = InstanceSpec(
        name=f"bench{_NUMBER}", command=(BENCH, "hold", f"{CALL_BACK}/{_NUMBER}"), limits=Limits(),
        volumes=(Volume(ROUNDS, CALL_BACK),),
    )  # fmt: skip
    commands = one.commands
    each = [
        *guest.placed(spec, (spec.name,)),
        *(must(*guest.words(words, spec, spec.name)) for words in commands.create),
    ]
    begun = shlex.join(guest.words(commands.start or commands.run, spec, spec.name))
    returns = commands.start and not commands.stays
    each.append(f"timeout {_THERE_S} {begun} || fail it did not start" if returns else f"{begun} &")
    # In a shell of its own: what is not made ends that one, and not the script, which looks for just that.
    alone = "\n".join(["(", _ALONE, *each, ")"])
    # The first start is unlike the others, so it does not count.
    first = replace(spec, name="benchfirst", command=(BENCH, "null"), volumes=())
    return script(
        [
            *guest.begin(tree, ours),
            must("mkdir", "-p", ROUNDS),
            *(must(*guest.words(load, spec)) for load in commands.load),
            *guest.placed(first, (first.name,)),
            f"{must(*guest.words(commands.run, first, first.name))} >/dev/null",
            *(f"{shlex.join(guest.words(gone, first, first.name))} >/dev/null 2>&1" for gone in commands.remove),
            _TOOLS,
            f'one() {{\neval "$(sed "s/{_NUMBER}/$1/g" <<\'END OF ONE\'\n{alone}\nEND OF ONE\n)"\n}}',
            f": >{SEEN}",
            "look 0",
            "count=0",
            f"while [ $count -lt {most} ]; do",
            '  one $count && there $count || { echo "' + STOPPED + f' $count" >>{SEEN}; break; }}',
            "  count=$((count + 1))",
            f"  case $count in {'|'.join(map(str, looks)) or '-'}) look $count ;; esac",
            "done",
            f'echo "{STARTED} $count" >>{SEEN}',
            "answered $count",
        ]
    )
