/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "policy.h"

/* Says what may be reached (reach_of). */
#define REACH_VARIABLE "VMTAILOR_REACH"
/* Ports of this host's IPv6 addresses that lead to the guest's: its address, then for each port
 * ";PROTOCOL,ADDRESS,PORT,GUEST-PORT". */
#define SIX_VARIABLE "VMTAILOR_SIX"
/* Where it is set, the guard says on standard error that it stands, and opens nothing. */
#define PROBE_VARIABLE "VMTAILOR_REACH_PROBE"

#define EXPORTED __attribute__((visibility("default")))

/* What this process may reach. */
enum reach reach(void);
