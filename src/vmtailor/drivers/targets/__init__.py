# SPDX-License-Identifier: Apache-2.0
"""The targets that a bundle is exported to: each writes files that start without vmtailor."""
