# SPDX-License-Identifier: Apache-2.0
"""The words of the notes in which a guest tells its memory, as idle instances come one after the other."""

#: Begins a note of the memory, before the number of instances; lines of /proc/meminfo follow, and one for each cgroup.
LOOK, CURRENT = "look", "current"
#: Begins the last notes: how many instances started, why the next one did not, and how many answered at the end.
STARTED, STOPPED, ANSWERED = "started", "stopped", "answered"
