# SPDX-License-Identifier: Apache-2.0
"""Machines measured: two at a time where that changes no figure."""
