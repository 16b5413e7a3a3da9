# SPDX-License-Identifier: Apache-2.0
# What `uname -m` says on hosts of this processor, and how its compiler is called elsewhere.
HOSTS_riscv64 := riscv64
CROSS_riscv64 := riscv64-linux-gnu-
