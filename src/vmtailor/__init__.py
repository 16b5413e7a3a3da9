# SPDX-License-Identifier: Apache-2.0
"""vmtailor: from a container image to the Linux virtual machine that fits it."""

__version__ = "0.2.0"
