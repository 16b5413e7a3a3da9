# SPDX-License-Identifier: Apache-2.0
# What `uname -m` says on hosts of this processor, and how its compiler is called elsewhere.
HOSTS_x86_64 := x86_64
CROSS_x86_64 := x86_64-linux-gnu-
