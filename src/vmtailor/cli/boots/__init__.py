# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot`: one verb, and the ways a machine is booted by it, a file each."""
