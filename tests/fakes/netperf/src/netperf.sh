#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
test "$1 $2 $3" = "-H 10.77.0.1 -t" || exit 1
echo " 87380  16384  16384    1.00     8000.00"
