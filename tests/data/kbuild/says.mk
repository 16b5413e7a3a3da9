# SPDX-License-Identifier: Apache-2.0
# What kbuild says of one folder, by its own scripts/Makefile.build; then on to the folders below it. Nothing is compiled.
# Where a folder is reached for modules alone, its real-obj-y is listed but never built (need-builtin).
PHONY := vmtailor-says
vmtailor-says:

include $(srctree)/scripts/Makefile.build

# A file a folder, so that several can be asked at once.
says := $(objtree)/says/of!$(subst /,!,$(obj))
$(file >>$(says),y $(filter %.o,$(if $(need-builtin),$(real-obj-y)) $(lib-y) $(extra-y)))
$(file >>$(says),m $(filter %.o,$(real-obj-m)))

vmtailor-says: $(subdir-ym)
	@:
