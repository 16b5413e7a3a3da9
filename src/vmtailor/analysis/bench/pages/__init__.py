# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks as pictures, sheets and pages."""
