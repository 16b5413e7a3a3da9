# SPDX-License-Identifier: Apache-2.0
"""An index of the kernel's messages, made from its source: it tells which option printed a line."""
