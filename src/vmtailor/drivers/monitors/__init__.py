# SPDX-License-Identifier: Apache-2.0
"""What starts machines, whatever the program: the protocol of a monitor, and the table of those that there are."""
