# SPDX-License-Identifier: Apache-2.0
"""The kinds of `vmtailor boot`, one file each."""
