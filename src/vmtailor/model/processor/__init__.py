# SPDX-License-Identifier: Apache-2.0
"""Parts of the record of a processor family (model/architecture.py)."""
