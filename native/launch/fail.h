// SPDX-License-Identifier: Apache-2.0
// The one way in which launching fails.
#ifndef VT_LAUNCH_FAIL_H
#define VT_LAUNCH_FAIL_H

// Say what could not be done, to which thing ("" when it needs no name) and why (errno); the status is 71.
_Noreturn void fail(const char *what, const char *which);

#endif
