// SPDX-License-Identifier: Apache-2.0
SYSCALL_DEFINE3(read, int, a, int, b, int, c)
{
}
SYSCALL_DEFINE2(umount, int, a, int, b)
{
}
SYSCALL_DEFINE3(openat, int, a, int, b, int, c)
{
}
SYSCALL_DEFINE3(mount, int, a, int, b, int, c)
{
}
