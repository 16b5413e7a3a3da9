# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: suites over runtimes, in turn, resumed where they stopped."""
