# SPDX-License-Identifier: Apache-2.0
"""One run: everything is made ready, every trial runs in its turn, results are kept on disk."""
