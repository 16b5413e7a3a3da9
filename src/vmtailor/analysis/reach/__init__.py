# SPDX-License-Identifier: Apache-2.0
"""Read from an image's files what its programs could ask the kernel for; nothing is executed."""
