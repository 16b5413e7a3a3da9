/* SPDX-License-Identifier: Apache-2.0 */
#include "common/signals.h"

#include <signal.h>

/* Those that some processors number otherwise; what is not here has one number everywhere. */
#define SIGNALS(each)                                                                                                  \
    each(7, SIGBUS) each(10, SIGUSR1) each(12, SIGUSR2) each(17, SIGCHLD) each(18, SIGCONT) each(19, SIGSTOP)          \
        each(20, SIGTSTP) each(21, SIGTTIN) each(22, SIGTTOU) each(23, SIGURG) each(24, SIGXCPU) each(25, SIGXFSZ)     \
            each(26, SIGVTALRM) each(27, SIGPROF) each(28, SIGWINCH) each(29, SIGIO) each(30, SIGPWR) each(31, SIGSYS)

int signal_here(int said) {
#define HERE(number, name)                                                                                             \
    case number:                                                                                                       \
        return name;
    switch (said) { SIGNALS(HERE) }
    return said;
}

int signal_said(int here) {
#define SAID(number, name)                                                                                             \
    case name:                                                                                                         \
        return number;
    switch (here) { SIGNALS(SAID) }
    return here;
}
