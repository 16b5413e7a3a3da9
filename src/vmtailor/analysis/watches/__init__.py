# SPDX-License-Identifier: Apache-2.0
"""Samples of a machine: read, put into columns, made into rates, panels and text for other programs."""
