# SPDX-License-Identifier: Apache-2.0
"""What messages of a log are signs of: which machine it is, and what its silences are."""
