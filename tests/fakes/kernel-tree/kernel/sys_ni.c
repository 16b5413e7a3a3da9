// SPDX-License-Identifier: Apache-2.0
COND_SYSCALL(futex);
COND_SYSCALL(epoll_create1);
COND_SYSCALL(timer_create);
COND_SYSCALL(setuid);
COND_SYSCALL(membarrier);
