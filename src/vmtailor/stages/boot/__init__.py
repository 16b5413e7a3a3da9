# SPDX-License-Identifier: Apache-2.0
"""What boots are looked into for, and changes tried on their machines."""
