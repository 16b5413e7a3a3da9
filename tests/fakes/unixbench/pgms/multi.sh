# SPDX-License-Identifier: Apache-2.0
test "$UB_TESTDIR" = "$(pwd)" && test -x "$UB_BINDIR/dhry2reg"
