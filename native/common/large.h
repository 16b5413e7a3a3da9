/* SPDX-License-Identifier: Apache-2.0 */
/* Large variables of a program that forks. A page that is written is copied after each fork, and some of the small
 * variables are written all the time: lying among large ones they would be on as many pages as there are. The linker
 * puts common variables behind all others. They are seen by all files, so each has the name of its own in front. */
#ifndef VT_LARGE_H
#define VT_LARGE_H

#ifdef __SANITIZE_ADDRESS__
#define LARGE /* the sanitizer watches the ends of others only */
#else
#define LARGE __attribute__((common))
#endif

#endif
