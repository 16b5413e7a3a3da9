# SPDX-License-Identifier: Apache-2.0
"""Results as HTML and Markdown."""
