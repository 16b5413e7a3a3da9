// SPDX-License-Identifier: Apache-2.0
static struct file_system_type parts_type = {
	.owner = THIS_MODULE,
	.name = "parts",
};
MODULE_ALIAS_FS("parts");
