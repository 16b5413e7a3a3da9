# SPDX-License-Identifier: Apache-2.0
"""Ways to run a container on this host or in a guest, and the scope, which leaves nothing of them behind."""
