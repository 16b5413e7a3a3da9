/* SPDX-License-Identifier: Apache-2.0 */
/* A tar from standard input, into the container. */
#ifndef VT_EXTRACT_H
#define VT_EXTRACT_H

/* Read the tar. `path` is a folder that its entries are put in, or the name for the only root of the archive. Nothing
 * is written outside of it, whatever the archive says. Returns the exit status: 1 at the first thing that cannot be
 * done, which is said on standard error. */
int extract(const char *path);

#endif
