# SPDX-License-Identifier: Apache-2.0
"""The requests of a container to its kernel, and those that newly fail."""
