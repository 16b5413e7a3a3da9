/* SPDX-License-Identifier: Apache-2.0 */
/* By its name netperf is recognised. */
extern int nothing;
