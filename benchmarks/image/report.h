// SPDX-License-Identifier: Apache-2.0
// What an instance says of itself.
#pragma once

// What this process is, in JSON, on standard output; calls back first by creating a file, if there is a name.
int report(const char *call_back);
// Reports, and becomes a program.
int witness(char **program);
