# SPDX-License-Identifier: Apache-2.0
"""The meaning of messages of a log: the machine that it is of, and its silences."""
