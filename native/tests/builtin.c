/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one of init's builtins under the sanitizers, as init runs it in a container.
 *
 *     builtin --further archive|extract|stats|top PATH FOLLOW
 */
#include "init/builtin/builtin.h"

int main(int argc, char **argv) {
    return builtin(argc, argv);
}
