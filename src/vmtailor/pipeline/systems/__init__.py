# SPDX-License-Identifier: Apache-2.0
"""Systems with an init of their own, from a reference to their facts."""
