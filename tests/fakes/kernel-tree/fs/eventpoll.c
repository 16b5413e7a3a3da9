// SPDX-License-Identifier: Apache-2.0
SYSCALL_DEFINE1(epoll_create1, int, flags)
{
}
