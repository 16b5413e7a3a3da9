// SPDX-License-Identifier: Apache-2.0
#ifdef CONFIG_MEMBARRIER
# include "membarrier.c"
#endif
