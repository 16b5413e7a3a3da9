# SPDX-License-Identifier: Apache-2.0
"""The command line for shells and manuals: completions and manual pages, made from the table of options."""
