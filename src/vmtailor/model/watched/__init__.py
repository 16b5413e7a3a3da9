# SPDX-License-Identifier: Apache-2.0
"""Records of systems that were watched while they started."""
