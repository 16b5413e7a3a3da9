# SPDX-License-Identifier: Apache-2.0
"""Programs that are started with next to no rights and files of the host."""
