# SPDX-License-Identifier: Apache-2.0
"""The cache: results by the content that they depend on."""
