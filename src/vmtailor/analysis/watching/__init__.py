# SPDX-License-Identifier: Apache-2.0
"""What a machine did over time: its samples read, put into columns, made into rates and into text for others."""
