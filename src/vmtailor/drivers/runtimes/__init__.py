# SPDX-License-Identifier: Apache-2.0
"""Ways to run a container, each described by a table of commands, and the scope in which they are driven."""
