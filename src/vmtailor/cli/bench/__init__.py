# SPDX-License-Identifier: Apache-2.0
"""`vmtailor bench`: its verb, and what it shows."""
