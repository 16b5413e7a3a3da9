# SPDX-License-Identifier: Apache-2.0
"""Systems with an init of their own: what their files say of kernels, loaders, mounts and units."""
