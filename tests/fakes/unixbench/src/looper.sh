#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
sh "$2" "$3" || exit 1
echo "COUNT|7|60|lpm" >&2
echo "TIME|42.0" >&2
