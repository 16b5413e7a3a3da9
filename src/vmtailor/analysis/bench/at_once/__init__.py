# SPDX-License-Identifier: Apache-2.0
"""Several instances at once within one machine, in virtual time."""
