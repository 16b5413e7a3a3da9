# SPDX-License-Identifier: Apache-2.0
"""The lab: an emulated machine in which KVM works, and in which monitors start machines."""
