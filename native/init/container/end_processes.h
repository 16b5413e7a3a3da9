/* SPDX-License-Identifier: Apache-2.0 */
/* The end of what the entry point left running. */
#ifndef VT_END_PROCESSES_H
#define VT_END_PROCESSES_H

/* SIGTERM, a grace, SIGKILL; then wait for output that is still on its way. */
void end_all_processes(void);

#endif
