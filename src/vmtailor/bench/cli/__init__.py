# SPDX-License-Identifier: Apache-2.0
"""The verb `bench` and its tables."""
