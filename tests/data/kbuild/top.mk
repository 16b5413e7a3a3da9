# SPDX-License-Identifier: Apache-2.0
# The kernel's own top Makefile, with a target that goes through all folders without preparing anything.
include $(abs_srctree)/Makefile

PHONY += vmtailor-top
vmtailor-top:
	$(Q)$(MAKE) $(build)=. need-builtin=1 need-modorder=1
