# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: the same container run in every way. Nothing outside of this package imports it."""
