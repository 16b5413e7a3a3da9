// SPDX-License-Identifier: Apache-2.0
SYSCALL_DEFINE2(futex, int, a, int, b)
{
}
