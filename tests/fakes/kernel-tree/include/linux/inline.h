/* SPDX-License-Identifier: Apache-2.0 */
#ifdef CONFIG_UNIX
static inline int unix_hook(void)
{
	return 1;
}
#else
static inline int unix_hook(void)
{
	return 0;
}
#endif
