# SPDX-License-Identifier: Apache-2.0
# sh scripts.sh N: N scripts at once, each of which sorts a text, dumps it and sorts the dump, searches it and counts,
# and removes what it wrote. Its files have its process's number in their names.
if [ "$1" = script ]; then
    sort </bench/text >sorted.$$
    od sorted.$$ | sort -n -k 1 >dumped.$$
    grep the sorted.$$ | tee found.$$ | wc >counted.$$
    rm sorted.$$ dumped.$$ found.$$ counted.$$
else
    left=$1
    while [ "$left" -gt 0 ]; do
        /bin/sh /bench/scripts.sh script &
        left=$((left - 1))
    done
    wait
fi
