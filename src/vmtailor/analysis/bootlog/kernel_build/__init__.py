# SPDX-License-Identifier: Apache-2.0
"""What a kernel's build leaves beside it, and a boot's log does not say."""
