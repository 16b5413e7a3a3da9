# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: a wheel carries the native parts, compiled by native/Makefile, and the pages of
documentation that `vmtailor help` prints."""

from __future__ import annotations

import shutil
import subprocess
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


setup(distclass=Binary, cmdclass={"build_py": BuildWithNatives, "bdist_wheel": PlatformWheel})
