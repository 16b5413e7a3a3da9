# SPDX-License-Identifier: Apache-2.0
"""Calls of a kernel that was followed: their cost, their trees, their pictures."""
