# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: what is run in which order, and what the results say."""
