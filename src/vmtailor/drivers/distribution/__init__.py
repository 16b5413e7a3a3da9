# SPDX-License-Identifier: Apache-2.0
"""The packages of a distribution: kernels, their symbols and source."""
