# SPDX-License-Identifier: Apache-2.0
"""Readers of boot logs and charts: one file per format, recognised by content. What they read is untrusted bytes."""
