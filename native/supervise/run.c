// SPDX-License-Identifier: Apache-2.0
#include "supervise/run.h"

void relay_stop(struct relay *relay, int number) {
    if (relay->asked_ms < 0) {
        relay->asked_ms = now_ms();
        relay->state.status = "stopping";
        if (!relay->gone)
            state_save(&relay->state);
    }
    if (!relay->gone)
        guest_signal(&relay->guest, number);
}
