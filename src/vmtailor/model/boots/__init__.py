# SPDX-License-Identifier: Apache-2.0
"""One start of a machine, and all that is known of it: what it did, said and cost."""
