# SPDX-License-Identifier: Apache-2.0
"""Parts of `explain` that are no answer to a single name."""
