# SPDX-License-Identifier: Apache-2.0
"""Systems with an init of their own: what one consists of, as records."""
