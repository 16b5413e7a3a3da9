# SPDX-License-Identifier: Apache-2.0
"""Account for a machine's memory: from the kernel's own log at its start, and from init's account after the load."""

from __future__ import annotations

import re

from vmtailor.model.boots.boot_cost import MemoryPart, MemoryUse

#: Bytes of `struct page` in 64-bit kernels, for each page of memory, used or not.
DESCRIPTOR_BYTES = 64
PAGE_BYTES = 4096
_KIB = 1024
#: Memory: 245240K/261752K available (6144K kernel code, 814K rwdata, 448K rodata, 700K init, 500K bss, …)
_MEMORY = re.compile(r"Memory: (\d{1,15})K/(\d{1,15})K available \(([^()\n]*)\)")
_PART = re.compile(r"(\d{1,15})K (kernel code|rwdata|rodata|init|bss|reserved)")
_FREED = re.compile(r"Freeing (?:unused (?:kernel|decrypted)|SMP alternatives)[^\n]{0,80}?memory: (\d{1,15})K")
_FIELD = re.compile(r"^(\w+(?:\(\w+\))?):\s+(\d{1,15})( kB)?$", re.MULTILINE)
#: Lines of /proc/meminfo that count the kernel's own objects.
_OBJECTS = ("Slab", "KernelStack", "PageTables", "Percpu")


def use(machine_bytes: int, kernel_log: str, account: str) -> MemoryUse | None:
    """Return the use of a machine's memory, part by part. `kernel_log`: of its boot; `account`: what init sent of it
    (the guest's /proc/meminfo where there is one, else `MemTotal`, `MemFree`, `Buffers` of sysinfo, in its form), after
    the load.

    None where either has nothing to say. The parts add up to `machine_bytes`."""
    start = _MEMORY.search(kernel_log)
    now = {name: int(value) * (_KIB if unit else 1) for name, value, unit in _FIELD.findall(account)}
    if start is None or not {"MemTotal", "MemFree"} <= now.keys():
        return None
    mapped = int(start[2]) * _KIB
    said = {name: int(size) * _KIB for size, name in _PART.findall(start[3])}
    image = sum(said.get(name, 0) for name in ("kernel code", "rwdata", "rodata", "bss"))
    # Its init part is given back, and so is the padding between its sections.
    freed = sum(int(size) for size in _FREED.findall(kernel_log)) * _KIB
    kernel = max(0, image + said.get("init", 0) - freed)
    descriptors = mapped // PAGE_BYTES * DESCRIPTOR_BYTES
    parts = [
        MemoryPart("kernel", kernel, "code and data of its file, without what it frees once it has started"),
        MemoryPart("page descriptors", descriptors, f"{DESCRIPTOR_BYTES} bytes for each page of memory, used or not"),
    ]
    before = mapped - now["MemTotal"]  # never given to anybody
    parts.append(
        MemoryPart(
            "reserved", before - kernel - descriptors, "early tables, alignment, and what it reserves at its start"
        )
    )
    parts += _given(now)
    parts.append(MemoryPart("free", now["MemFree"], "nobody has it"))
    parts.append(MemoryPart("firmware", machine_bytes - mapped, "not in the map that the kernel was given"))
    return MemoryUse(machine_bytes, tuple(part for part in parts if part.bytes))


def needed(found: MemoryUse, caches_kept: float = 0.5) -> int:
    """Return about how much memory would do, told by the use of a machine that has more, in bytes: what is in use and
    descriptors for that much. `caches_kept`: the share that stays of what can be dropped."""
    bytes_of = {part.name: part.bytes for part in found.parts}
    dropped = int(bytes_of.get("caches", 0) * (1 - caches_kept))
    spare = bytes_of.get("free", 0) + bytes_of.get("page descriptors", 0) + dropped
    return (found.machine_bytes - spare) * PAGE_BYTES // (PAGE_BYTES - DESCRIPTOR_BYTES)


def _given(now: dict[str, int]) -> list[MemoryPart]:
    """Return the memory that was given out: in all MemTotal - MemFree."""
    given = now["MemTotal"] - now["MemFree"]
    if "AnonPages" not in now:  # sysinfo tells no more
        return [
            MemoryPart(
                "in use", given, "container, caches and the kernel's objects: without /proc they are not told apart"
            )
        ]
    objects = sum(now.get(name, 0) for name in _OBJECTS)
    caches = now.get("Buffers", 0) + now.get("Cached", 0)
    return [
        MemoryPart("kernel's objects", objects, "slabs, stacks, page tables, per-CPU data"),
        MemoryPart("container", now["AnonPages"], "what its processes and init wrote: heaps, stacks, data"),
        MemoryPart(
            "caches",
            caches,
            "pages of files, programs and libraries among them; all but temporary files can be dropped",
        ),
        MemoryPart("other", given - objects - caches - now["AnonPages"], "what the kernel took without an account"),
    ]
