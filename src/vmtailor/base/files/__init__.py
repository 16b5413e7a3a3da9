# SPDX-License-Identifier: Apache-2.0
"""Files: read without following anybody's tricks, written whole or not at all."""
