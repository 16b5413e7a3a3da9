# SPDX-License-Identifier: Apache-2.0
"""What a guest of ours said → the record of its boot."""
