// SPDX-License-Identifier: Apache-2.0
SYSCALL_DEFINE3(membarrier, int, cmd, unsigned int, flags, int, cpu)
{
}
