# SPDX-License-Identifier: Apache-2.0
"""The work of a fleet: the graph of its stages, the engine that carries it, and what a machine does for it."""
