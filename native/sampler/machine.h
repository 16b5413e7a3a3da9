/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's own figures: processors, load, memory, disks, interfaces. */
#ifndef VT_SAMPLER_MACHINE_H
#define VT_SAMPLER_MACHINE_H

/* Add the machine's lines to the sample. */
void machine_sample(void);

#endif
