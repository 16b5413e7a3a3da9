# SPDX-License-Identifier: Apache-2.0
"""Explain why something is in a fitted machine, or out."""
