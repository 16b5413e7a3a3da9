# SPDX-License-Identifier: Apache-2.0
"""From a module's file to the symbol that builds it: `obj-$(CONFIG_X) += name.o` in the Makefile of its folder."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from vmtailor.base.words.modules import module_name

_CONTINUED = re.compile(r"\\\n")
_OBJECTS = re.compile(r"^obj-\$\(CONFIG_(\w+)\)\s*[+:]?=([^\n#]*)", re.M)


def symbol_of(module: str, read: Callable[[str], str | None]) -> str | None:
    """The symbol of a module (`crypto/af_alg`, its path in the tree without ending), or None when no Makefile says.

    `read` gives the text of a file of the tree. Dashes and underscores are one, as in names of modules."""
    folder, name = posixpath.split(module)
    wanted = module_name(name) + ".o"
    for makefile in ("Kbuild", "Makefile"):
        text = _CONTINUED.sub(" ", read(posixpath.join(folder, makefile)) or "")
        for match in _OBJECTS.finditer(text):
            if wanted in map(module_name, match.group(2).split()):
                return match.group(1)
    return None
