# SPDX-License-Identifier: Apache-2.0
"""Tables and documents of verbs that have several."""
