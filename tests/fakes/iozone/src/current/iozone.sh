#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
test "$*" = "-e -i 0 -i 1 -s 102400k -r 8k -f /data/file" || exit 1
echo "	Command line used: $0 $*"
echo "                                                              random    random"
echo "              kB  reclen    write  rewrite    read    reread    read     write"
echo "          102400       8   100000   200000   300000   400000"
