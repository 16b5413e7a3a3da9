/* SPDX-License-Identifier: Apache-2.0 */
/* What the tracer of a system is called, as the first of its words: by it the attendant finds it. */
#ifndef VT_TRACER_NAME_H
#define VT_TRACER_NAME_H

#define TRACER_NAME "@vmtailor-strace"

#endif
