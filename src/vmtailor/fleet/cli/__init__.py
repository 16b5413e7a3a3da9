# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet`: its actions, and what they print."""
