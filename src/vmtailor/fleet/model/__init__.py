# SPDX-License-Identifier: Apache-2.0
"""Records of fleets: the list of images, its entries, and what in it has no meaning."""
