# SPDX-License-Identifier: Apache-2.0
# What `uname -m` says on hosts of this processor, and how its compiler is called elsewhere.
HOSTS_arm64 := aarch64
CROSS_arm64 := aarch64-linux-gnu-
