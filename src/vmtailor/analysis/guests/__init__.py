# SPDX-License-Identifier: Apache-2.0
"""The record of a boot, from what a guest of ours said."""
