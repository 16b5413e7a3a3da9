# SPDX-License-Identifier: Apache-2.0
"""What may be changed: the catalogues, causes, and the search for what to put back."""
