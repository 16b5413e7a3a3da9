# SPDX-License-Identifier: Apache-2.0
"""File systems, disks and initial RAM disks."""
