# SPDX-License-Identifier: Apache-2.0
"""What a distribution packages: kernels, their symbols and source."""
