# SPDX-License-Identifier: Apache-2.0
"""The suites: the tests of each one, and the figures of a trial."""
