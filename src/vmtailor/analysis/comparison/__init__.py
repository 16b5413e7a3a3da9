# SPDX-License-Identifier: Apache-2.0
"""Two boots, or a boot and a budget."""
