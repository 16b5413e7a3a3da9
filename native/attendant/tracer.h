/* SPDX-License-Identifier: Apache-2.0 */
/* Who watches the system, where somebody does (small-init/watch.h). */
#ifndef VT_TRACER_H
#define VT_TRACER_H

/* End the tracer, if there is one: whom it traced goes on by itself. Before it ends them, a service manager stops every
 * process there is, the tracer, too, and itself waits from then on for a tracer that stands still. */
void tracer_end(void);

#endif
