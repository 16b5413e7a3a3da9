# SPDX-License-Identifier: Apache-2.0
"""Facts of a kernel source tree: Kconfig, Kbuild, preprocessor conditions, system calls and names."""
