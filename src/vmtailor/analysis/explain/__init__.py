# SPDX-License-Identifier: Apache-2.0
"""Why something is in, or out."""
