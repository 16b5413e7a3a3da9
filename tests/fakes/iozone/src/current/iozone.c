/* SPDX-License-Identifier: Apache-2.0 */
/* By its name IOzone is recognised. */
extern int nothing;
