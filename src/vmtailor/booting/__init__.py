# SPDX-License-Identifier: Apache-2.0
"""Machines started: one boot, driven by its workload; a series of them; and a terminal relayed to one."""
