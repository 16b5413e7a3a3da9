# SPDX-License-Identifier: Apache-2.0
"""Fleets: many images fitted on many machines. Nothing outside of this package imports it."""
