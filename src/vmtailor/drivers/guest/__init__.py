# SPDX-License-Identifier: Apache-2.0
"""Conversation between a guest and its host."""
