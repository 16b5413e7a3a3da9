// SPDX-License-Identifier: Apache-2.0
static int folders(struct kobject **made)
{
	*made = kobject_create_and_add("transparent_hugepage", mm_kobj);
	return sysfs_create_group(mm_kobj, &merging_group);
}

static const struct attribute_group merging_group = {
	.name = "ksm",
};
