# SPDX-License-Identifier: Apache-2.0
"""Repeated figures: what they are, and whether they differ."""
