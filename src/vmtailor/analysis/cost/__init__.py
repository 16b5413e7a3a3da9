# SPDX-License-Identifier: Apache-2.0
"""The cost of each part of a kernel, in instructions."""
