// SPDX-License-Identifier: Apache-2.0
static int init(void)
{
	proc_create("stat", 0, NULL, &stat_ops);
	return 0;
}
