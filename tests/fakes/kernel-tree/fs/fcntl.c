// SPDX-License-Identifier: Apache-2.0
SYSCALL_DEFINE3(fcntl, int, a, int, b, int, c)
{
}
