# SPDX-License-Identifier: Apache-2.0
"""Which option of the kernel printed a line: an index of its messages, made from its source, and how to ask it."""
