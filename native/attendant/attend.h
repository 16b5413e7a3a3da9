/* SPDX-License-Identifier: Apache-2.0 */
/* The child that stays behind: it drives the system by the exercise. */
#ifndef VT_ATTEND_H
#define VT_ATTEND_H

/* Before the disk is left: read what we were told (/config, /reports), hold the client. `port`: the line to the host.
 */
void attend_prepare(int port);
/* Until the machine ends. */
_Noreturn void attend(void);

#endif
