# SPDX-License-Identifier: Apache-2.0
"""Images, from wherever they are kept to one flat archive."""
