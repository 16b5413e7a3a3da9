# SPDX-License-Identifier: Apache-2.0
"""One run: everything made ready, every trial in its turn, results on disk."""
