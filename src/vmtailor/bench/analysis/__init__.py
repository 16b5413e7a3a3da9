# SPDX-License-Identifier: Apache-2.0
"""Trials become cells, tables and advice. Pure."""
