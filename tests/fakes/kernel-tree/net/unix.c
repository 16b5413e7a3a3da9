// SPDX-License-Identifier: Apache-2.0
static const struct net_proto_family unix_family = {
	.family = PF_UNIX,
	.create = create,
};
