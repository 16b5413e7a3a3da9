# SPDX-License-Identifier: Apache-2.0
"""What an image's programs could ask the kernel for, read from their files; nothing is executed."""
