// SPDX-License-Identifier: Apache-2.0
static const struct bus_type nodes_subsys = {
	.name = "node",
	.dev_name = "node",
};

static struct class things_class = {
	.name = "things",
};

static int start(void)
{
	class_create("made");
	sysfs_create_mount_point(fs_kobj, "parts");
	kset_create_and_add("below_another", NULL, &other->kobj);
	return subsys_system_register(&nodes_subsys, groups);
}
