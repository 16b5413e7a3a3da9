# SPDX-License-Identifier: Apache-2.0
"""Firecracker: how it starts a machine."""
