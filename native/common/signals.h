/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of signals: host and guest say those that most processors have, whatever the guest's are. */
#ifndef VT_COMMON_SIGNALS_H
#define VT_COMMON_SIGNALS_H

/* The number that this processor's kernel has for a signal that is said. */
int signal_here(int said);

/* The other way round. */
int signal_said(int here);

#endif
