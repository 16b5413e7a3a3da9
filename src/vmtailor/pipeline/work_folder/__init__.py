# SPDX-License-Identifier: Apache-2.0
"""A work folder: every stage of a fit adds its record to it, and the next stage reads that."""
