# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: a wheel carries the native parts, compiled by native/Makefile, the pages of
documentation that `vmtailor help` prints, manual pages, and the completions of shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "native"
#: Folders of docs/ whose pages a wheel carries (base/manual.py reads them).
PAGES = ("tutorial", "how-to", "reference", "explanation")


class BuildWithNatives(build_py):
    """Compile into the package as it is built. An editable installation compiles on first use (base/natives.py)."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        self.copy_pages(Path(self.build_lib) / "vmtailor" / "docs")
        self.write_share_files(Path(self.build_lib).resolve().parent / "share-files")
        for tool, package in (("make", "make"), ("cc", "gcc")):
            if shutil.which(tool) is None:
                raise CompileError(f"'{tool}' is needed for the native parts: apt-get install {package} musl-tools")
        out = Path(self.build_lib).resolve() / "vmtailor" / "_native"
        try:
            subprocess.run(["make", "-C", str(NATIVE), f"OUT={out}"], check=True)
            # For other processors, where their compilers are.
            subprocess.run(["make", "-C", str(NATIVE), f"OUT={out}", "others"], check=True)
        except subprocess.CalledProcessError as error:
            raise CompileError(
                "the native parts could not be compiled (see above); a static C library is needed: "
                "apt-get install gcc make musl-tools"
            ) from error

    @staticmethod
    def copy_pages(out: Path) -> None:
        """Copy the pages, and drop those of an older build."""
        shutil.rmtree(out, ignore_errors=True)
        for kind in PAGES:
            (out / kind).mkdir(parents=True)
            for page in sorted((ROOT / "docs" / kind).glob("*.md")):
                shutil.copy(page, out / kind)

    def write_share_files(self, out: Path) -> None:
        """Write manual pages and completions from the table of options, and let them be installed below `share`."""
        shutil.rmtree(out, ignore_errors=True)
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, str(ROOT / "tools" / "share_files.py"), str(out)]
        try:
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        except subprocess.CalledProcessError as error:
            raise CompileError("the manual pages could not be written (see above)") from error
        folders: dict[str, list[str]] = {}
        for file in sorted(one for one in out.rglob("*") if one.is_file()):
            folders.setdefault(str(file.parent.relative_to(out)), []).append(os.path.relpath(file, ROOT))
        self.distribution.data_files = list(folders.items())


class PlatformWheel(bdist_wheel):
    """Any Python 3, but one kind of machine."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    """Goes to platlib."""

    def has_ext_modules(self) -> bool:
        return True


# The table of options is read by importing the program: a build of its own has what the program imports.
IMPORTED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
setup(setup_requires=IMPORTED, distclass=Binary, cmdclass={"build_py": BuildWithNatives, "bdist_wheel": PlatformWheel})
