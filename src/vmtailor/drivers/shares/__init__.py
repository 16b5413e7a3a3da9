# SPDX-License-Identifier: Apache-2.0
"""Folders of the host that a machine shares: their file servers, and named volumes."""
