# SPDX-License-Identifier: Apache-2.0
"""The suites: the tests of each, and how a trial is measured."""
