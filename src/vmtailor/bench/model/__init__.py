# SPDX-License-Identifier: Apache-2.0
"""Records of benchmarks: instances, jobs, results."""
