# SPDX-License-Identifier: Apache-2.0
"""Trials to cells, tables and advice. Pure."""
