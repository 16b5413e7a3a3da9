# SPDX-License-Identifier: Apache-2.0
"""The changes that may be made: the catalogues, causes, and the search for symbols to put back."""
