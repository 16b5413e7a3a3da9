# SPDX-License-Identifier: Apache-2.0
"""Records of benchmarks: the same container in every runtime."""
