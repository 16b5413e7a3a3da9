# SPDX-License-Identifier: Apache-2.0
"""Stages of a system's boot: its cost by function, its profile, and the installed kernel."""
