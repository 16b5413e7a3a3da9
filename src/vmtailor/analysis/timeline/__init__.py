# SPDX-License-Identifier: Apache-2.0
"""Boot logs, once read → one timeline: phases, durations, hot spots, pages."""
