#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
test "$1 $2 $3" = "-H 10.77.0.1 -t" || exit 1
if test "$4" = TCP_RR; then
    echo "16384  131072 1        1       1.00     20000.00"
    echo "16384  131072"
    exit
fi
echo " 87380  16384  16384    1.00     8000.00"
