// SPDX-License-Identifier: Apache-2.0
static struct miscdevice thing_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "thing",
	.nodename = "things/one",
};
