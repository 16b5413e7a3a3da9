# SPDX-License-Identifier: Apache-2.0
"""What each part of a kernel costs, in instructions."""
