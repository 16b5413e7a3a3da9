# SPDX-License-Identifier: Apache-2.0
"""Machines with an init of their own, booted and measured: one boot, a series, and changes tried on it."""
