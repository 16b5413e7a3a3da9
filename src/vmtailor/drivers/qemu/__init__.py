# SPDX-License-Identifier: Apache-2.0
"""QEMU: its command line, its process, what it may do, what its plugin counts."""
