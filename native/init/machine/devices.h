/* SPDX-License-Identifier: Apache-2.0 */
/* The device nodes that container engines give. */
#ifndef VT_DEVICES_H
#define VT_DEVICES_H

void devices_make(void);

#endif
