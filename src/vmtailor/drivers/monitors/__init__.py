# SPDX-License-Identifier: Apache-2.0
"""Monitors, which start machines: their protocol, and the table of those that there are."""
