# SPDX-License-Identifier: Apache-2.0
"""Cloud Hypervisor: how it starts a machine."""
