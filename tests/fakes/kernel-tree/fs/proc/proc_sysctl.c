// SPDX-License-Identifier: Apache-2.0
static struct ctl_table kern_table[] = {
	{
		.procname = "threads",
	},
#ifdef CONFIG_EPOLL
	{
		.procname = "watches",
	},
#endif
};
static int init(void)
{
	register_sysctl_init("kernel", kern_table);
	return 0;
}
