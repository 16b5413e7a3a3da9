# SPDX-License-Identifier: Apache-2.0
"""The suites: what each one runs, and which figures come of it."""
