/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of the machine while it is driven, where the run asks for them: a program of ours takes them
 * (sampler/sample.h), and the host gets them as they come. */
#ifndef VT_SAMPLING_H
#define VT_SAMPLING_H

#include <stdbool.h>
#include <sys/types.h>

void sampling_start(void);
/* A process has ended: was it the sampler? */
bool sampling_exit(pid_t pid);
/* A step of the load begins: marked where samples are taken. */
void sampling_step(int number);

#endif
