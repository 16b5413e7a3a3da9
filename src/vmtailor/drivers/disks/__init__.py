# SPDX-License-Identifier: Apache-2.0
"""Disk images of whole systems: their form, their partitions, the file systems in them; read without root."""
