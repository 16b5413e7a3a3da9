# SPDX-License-Identifier: Apache-2.0
"""Verbs for systems with an init of their own."""
