# SPDX-License-Identifier: Apache-2.0
"""Lists of images in the forms that people have, read into entries. Their bytes are untrusted."""
