// SPDX-License-Identifier: Apache-2.0
SYSCALL_DEFINE3(socket, int, a, int, b, int, c)
{
}
