# SPDX-License-Identifier: Apache-2.0
# What `uname -m` says on hosts of this processor, and how its compiler is called elsewhere.
HOSTS_mips64el := mips64
CROSS_mips64el := mips64el-linux-gnuabi64-
