// SPDX-License-Identifier: Apache-2.0
#ifdef CONFIG_MULTIUSER
SYSCALL_DEFINE1(setuid, uid_t, uid)
{
}
#endif
