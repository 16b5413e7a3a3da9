# SPDX-License-Identifier: Apache-2.0
"""What is said between a guest and its host."""
