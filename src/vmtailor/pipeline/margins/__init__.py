# SPDX-License-Identifier: Apache-2.0
"""What margins cost, and the kernels that images share through them."""
