# SPDX-License-Identifier: Apache-2.0
"""`run`: a bundle's container in its machine, as container engines run one."""
