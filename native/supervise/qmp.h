// SPDX-License-Identifier: Apache-2.0
// The one question that a silent machine's monitor is asked (QMP): do its CPUs still take interrupts?
#ifndef VT_SUPERVISE_QMP_H
#define VT_SUPERVISE_QMP_H

#include <stdbool.h>

#include "supervise/bytes.h"

enum qmp_state { QMP_GREETING, QMP_AGREEING, QMP_IDLE, QMP_ASKED, QMP_GONE };

struct qmp {
    int fd;
    enum qmp_state state;
    bool wanted; // an answer is waited for
    struct bytes heard;
};

void qmp_start(struct qmp *qmp, int fd);

// Ask for the registers of all CPUs; `qmp_hear` gives the answer.
void qmp_ask(struct qmp *qmp);

// Read what has come. True when an answer says that every CPU waits for an interrupt while it takes none: nothing but a
// reset ends that. `cpu` and `halted` are patterns of a line that tells of a CPU, and of one that has halted.
bool qmp_hear(struct qmp *qmp, const char *cpu, const char *halted);

#endif
