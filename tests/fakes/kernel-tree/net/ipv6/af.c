// SPDX-License-Identifier: Apache-2.0
static const struct net_proto_family inet6_family = {
	.family = PF_INET6,
	.create = create,
};
