# SPDX-License-Identifier: Apache-2.0
"""`python -m vmtailor` is `vmtailor`."""

from vmtailor.cli.entry import main

main()
