/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of each container that an engine has started in this machine, from its control group (version 2). */
#ifndef VT_SAMPLER_CONTAINERS_H
#define VT_SAMPLER_CONTAINERS_H

/* Add a line for each container to the sample, and one that names it where it is new. */
void containers_sample(void);

#endif
