#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
test -f sort.src || exit 1
echo "COUNT|1000|1|lps" >&2
echo "TIME|$1.0" >&2
