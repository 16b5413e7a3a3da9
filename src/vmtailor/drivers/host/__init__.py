# SPDX-License-Identifier: Apache-2.0
"""This host: its tools, its terminal, its files."""
