# SPDX-License-Identifier: Apache-2.0
"""The wing of benchmarks: the same container in every way to run it. Nothing outside of it imports it."""
