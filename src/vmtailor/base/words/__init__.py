# SPDX-License-Identifier: Apache-2.0
"""Text for people: figures, sizes, versions, and nothing that steers a terminal."""
