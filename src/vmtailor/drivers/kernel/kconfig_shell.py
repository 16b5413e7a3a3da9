# SPDX-License-Identifier: Apache-2.0
"""The shell behind Kconfig's `$(shell,…)` macros, which ask the compiler what it can do, and what make tells Kconfig.

These are shell commands of the kernel tree itself, which the kernel's own make runs all the same when it configures;
nothing of an image or a guest ever gets into them. They run in a scratch folder (some make temporary folders where they
stand) and with the environment that make would give them. Their answers are kept by tree and tools.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import BuildError, VmtailorError
from vmtailor.base.files import temporary
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.process import CommandFailed, require_tool, run
from vmtailor.model.architecture import Architecture, presumed

#: Variables that the kernel's Makefile exports for Kconfig, with its defaults for a native build.
TOOLS = {
    "CC": "gcc", "LD": "ld", "AR": "ar", "NM": "nm", "OBJCOPY": "objcopy", "HOSTCC": "gcc", "HOSTCXX": "g++",
    "RUSTC": "rustc", "BINDGEN": "bindgen", "PAHOLE": "pahole",
}  # fmt: skip
#: Those that make for the kernel, and not for this host; and LLVM's in their place.
_TARGET = ("CC", "LD", "AR", "NM", "OBJCOPY")
_LLVM = {"CC": "clang", "LD": "ld.lld", "AR": "llvm-ar", "NM": "llvm-nm", "OBJCOPY": "llvm-objcopy"}
#: Stands for the place of the tree in what is kept.
_TREE = "$(srctree)"
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN")


def kernel_version(source: Path) -> str:
    """Return the version that a tree's top Makefile states, such as `6.12.117`. Raises BuildError when it states
    none."""
    try:
        text = (source / "Makefile").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(f"{source} is not a kernel source tree", hint="it has no Makefile") from error
    parts = [
        match.group(1) if (match := re.search(rf"^{name}[ \t]*=[ \t]*(\S*)", text, re.M)) else ""
        for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL", "EXTRAVERSION")
    ]
    if not parts[0] or not parts[1]:
        raise BuildError(f"{source} is not a kernel source tree", hint="its Makefile states no version")
    return ".".join(p for p in parts[:3] if p) + parts[3]


class KconfigShell:
    """Callable: a command → its output with line feeds as spaces, as Kconfig wants it. `close()` saves new answers."""

    def __init__(
        self, source: Path, *, architecture: Architecture | None = None, store: Store | None = None,
        source_id: str = "", llvm: str = "",
    ) -> None:  # fmt: skip
        """`source_id` names the tree's content (its package and version); without it nothing is kept. `llvm`: the
        suffix of LLVM's programs, where these make the kernel."""
        family = architecture or presumed()
        prefix, package = ("", "gcc") if family.is_host else (family.kernel.cross, family.kernel.cross_packages[0])
        tools = {name: prefix + tool if name in _TARGET else tool for name, tool in TOOLS.items()}
        if llvm:
            tools |= {name: tool + llvm for name, tool in _LLVM.items()}
            package = f"clang{llvm}"
        self.source = source.resolve()
        path = os.environ.get("PATH", "/usr/bin:/bin")
        self._base = {n: os.environ[n] for n in _PASSED_ON if n in os.environ} | {"LC_ALL": "C", "PATH": path}
        self.env = self._base | {
            **tools,
            **family.kernel.kconfig,
            "CLANG_FLAGS": f"--target={family.kernel.cross.rstrip('-')} -fintegrated-as" if llvm else "",
            "KERNELVERSION": kernel_version(self.source), "srctree": str(self.source), "objtree": ".",
            "CC_VERSION_TEXT": self._first_line([require_tool(tools["CC"], package), "--version"]),
            "RUSTC_VERSION_TEXT": self._first_line(["rustc", "--version"]),
            "PAHOLE_VERSION": "0",
        }  # fmt: skip
        self._answers: dict[str, str] = {}
        self._new = False
        self._file: Path | None = None
        #: All that the symbols of the tree depend on, for the key of what is kept of them; empty where nothing is kept.
        self.key: tuple[str, ...] = ()
        if source_id:
            asked = (tools["CC"], tools["LD"], "pahole", "rustc", "bindgen")
            versions = "\n".join(self._first_line([tool, "--version"]) for tool in asked)
            key = digest("kconfig-shell/4", family.name, source_id, versions)
            told = {name: self._told(value) for name, value in self.env.items() if name not in self._base}
            self.key = (key, json.dumps(told, sort_keys=True))
            store = store or Store()
            self._file = store.path("kconfig-shell", key) / "answers.json"
            if self._file.is_file():
                store.used(self._file)
                self._answers = dict(json.loads(self._file.read_text()))

    def _first_line(self, argv: list[str]) -> str:
        try:
            return run(argv, timeout_s=30, env=self._base).text.partition("\n")[0]
        except VmtailorError:  # not there: as make has it then, the answer is empty
            return ""

    def __call__(self, command: str) -> str:
        known = self._answers.get(asked := self._told(command))
        if known is None:
            with temporary.held_folder() as scratch:
                try:
                    finished = run(
                        ["/bin/sh", "-c", command], timeout_s=60, env=self.env, cwd=scratch, ok=tuple(range(256))
                    )
                except CommandFailed as error:  # ended by a signal: no answer
                    finished = error.finished
                # On a full disk a compiler can do nothing, and the command hides why: that is no answer to keep.
                temporary.require_room(scratch)
            known = "\n".join(finished.text.splitlines()).rstrip("\n").replace("\n", " ")
            known = self._told(known)
            self._answers[asked] = known
            self._new = True
        return known.replace(_TREE, str(self.source))

    def _told(self, text: str) -> str:
        """Return a text with the tree's place left out: answers hold wherever it lies."""
        return text.replace(str(self.source), _TREE)

    def close(self) -> None:
        """Save the answers for the next time."""
        if self._new and self._file is not None:
            write_atomic(self._file, json.dumps(self._answers, indent=1, sort_keys=True).encode(), private=True)
            self._new = False
