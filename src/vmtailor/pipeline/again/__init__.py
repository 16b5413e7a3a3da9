# SPDX-License-Identifier: Apache-2.0
"""A bundle fitted once more, from what is in it."""
