// SPDX-License-Identifier: Apache-2.0
#include "launch/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void fail(const char *what, const char *which) {
    fprintf(stderr, "launch: %s%s%s: %s\n", what, *which ? " " : "", which, strerror(errno));
    exit(71);
}
