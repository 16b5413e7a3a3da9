# SPDX-License-Identifier: Apache-2.0
"""Kernel sources: configured, compiled, looked up."""
