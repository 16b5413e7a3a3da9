# SPDX-License-Identifier: Apache-2.0
"""What a container asked its kernel for, and what newly fails."""
