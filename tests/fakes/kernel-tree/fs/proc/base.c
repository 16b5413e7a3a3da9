// SPDX-License-Identifier: Apache-2.0
static const struct pid_entry tgid_base_stuff[] = {
	DIR("fd", 0500, ops),
	ONE("status", 0444, proc_pid_status),
#ifdef CONFIG_PROC_EXTRA
	REG("smaps", 0444, ops),
#endif
};
