# SPDX-License-Identifier: Apache-2.0
"""libkrun: how it starts a machine."""
