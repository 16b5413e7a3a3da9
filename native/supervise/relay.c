// SPDX-License-Identifier: Apache-2.0
#include "supervise/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/signals.h"
#include "supervise/caught.h"
#include "supervise/control.h"
#include "supervise/terminal.h"

#define READER_MS 1000   // what a reader has for what is queued when the grace period is over
#define AHEAD 65536      // bytes of standard input that may wait for the guest
#define SERIAL_READ 4096 // of it at once, for a serial line
#define LOOK_MS 500
#define LOOK_TICKS 3 // processor time of a monitor that only answers such a look
#define SILENCE_MS                                                                                                     \
    5000                 // silence after which it is asked whether the CPUs still take interrupts, and between two such
                         // looks: a kernel whose console was silenced says nothing when it halts
#define AWAIT_MS 30000   // for the client that a machine waits for
#define STARVED_PART 8   // of the time to start, when a monitor that had less than this part of it is waited for
#define STARVED_TIMES 10 // at most so many times that time
#define MONITOR_MS 5000  // what a monitor has to end whose machine has

static struct relay *running; // the one whose guest speaks

static void on_output(bool errors, const uint8_t *data, size_t length) {
    const struct orders *orders = running->orders;
    if (!orders->detached && !(errors ? orders->no_stderr : orders->no_stdout))
        outlet_put(errors ? &running->err : &running->out, data, length);
    log_output(errors, data, length);
    control_output(errors, data, length);
}

static void on_further(char type, const uint8_t *payload, size_t length) {
    control_session_frame(running, type, payload, length);
}

// Should the guest wait for those who read its output? Not when it is to end: then it must be heard.
static bool is_held_back(const struct relay *relay) {
    bool full = outlet_full(&relay->out) || outlet_full(&relay->err) || control_full();
    return full && relay->asked_ms < 0 && !guest_ended(&relay->guest);
}

static bool is_over(int64_t now, int64_t since, int64_t limit) {
    return since >= 0 && limit >= 0 && now > since + limit;
}

// On a busy host a monitor was seen to sleep for ever before its guest had begun. Nothing of the container has run yet,
// so it can be started once more: it did nothing between two looks at its silence.
static bool sleeps(struct relay *relay) {
    struct bytes places = {0};
    char line[1024];
    if (relay->guest.listening || relay->asked_ms >= 0 || relay->slept)
        return false;
    int64_t used = machine_asleep(&relay->machine, &places), before = relay->used;
    relay->used = used;
    relay->slept = used >= 0 && before >= 0 && used - before < LOOK_TICKS;
    if (relay->slept) {
        int length =
            snprintf(line, sizeof(line),
                     "vmtailor: the monitor slept before its guest had begun, and was "
                     "started again: %.*s\n",
                     (int)(bytes_left(&places) > 800 ? 800 : bytes_left(&places)), (const char *)bytes_first(&places));
        if (!relay->orders->detached)
            outlet_put(&relay->err, line, (size_t)length);
        else if (!relay->alone && write(2, line, (size_t)length) < 0)
            errno = 0; // nobody reads it
    }
    bytes_free(&places);
    return relay->slept;
}

// Is the machine to be ended? A guest that writes disks ends its container itself at first, and writes what it holds:
// a container that is killed loses nothing, as with engines.
static bool is_to_end(struct relay *relay, int64_t now) {
    struct guest *guest = &relay->guest;
    if (!relay->killed && !is_over(now, relay->asked_ms, relay->grace_ms))
        return false;
    if (relay->orders->flush_ms <= 0 || !guest->listening)
        return true;
    if (relay->flush_ms < 0) {
        relay->flush_ms = now;
        guest_signal(guest, SIGKILL);
    }
    return is_over(now, relay->flush_ms, relay->orders->flush_ms);
}

// A monitor that wants the processor and hardly had it is not to blame that its guest has not begun: the host is busy.
static bool is_starved(const struct relay *relay, int64_t now) {
    struct bytes places = {0};
    int64_t had = now - relay->machine.started_ms;
    bool starved = had < STARVED_TIMES * relay->orders->start_ms &&
                   STARVED_PART * machine_used_ms(&relay->machine) < had &&
                   machine_asleep(&relay->machine, &places) < 0;
    bytes_free(&places);
    return starved;
}

static enum finish finished(struct relay *relay) {
    const struct guest *guest = &relay->guest;
    int64_t now = now_ms();
    if (guest_ended(guest) && relay->ended_ms < 0)
        relay->ended_ms = now;
    if (!guest->open || is_over(now, relay->ended_ms, relay->orders->last_ms))
        return FINISH_CLOSED;
    if (guest->farewell && !guest_ended(guest))
        return FINISH_FAREWELL;
    if (is_to_end(relay, now))
        return FINISH_KILLED;
    if (!guest->listening && is_over(now, relay->machine.started_ms, relay->orders->start_ms) &&
        !is_starved(relay, now))
        return FINISH_NOT_STARTED;
    if (!is_held_back(relay) && now > relay->heard_ms + SILENCE_MS) {
        relay->heard_ms = now;
        if (sleeps(relay))
            return FINISH_SLEPT;
        qmp_ask(&relay->qmp);
    }
    return FINISH_NONE;
}

static void pass_on(struct relay *relay, int number) {
    int rows, columns;
    bool here = relay->orders->terminal && !relay->orders->detached;
    if (number == SIGCONT && here && relay->orders->interactive)
        terminal_raw();
    if (number == SIGWINCH && here) {
        terminal_size(&rows, &columns);
        guest_window(&relay->guest, rows, columns);
    } else {
        guest_signal(&relay->guest, signal_said(number));
    }
}

static void hear_signals(struct relay *relay) {
    int number;
    while ((number = caught_next(relay->signals))) {
        if (number == SIGHUP && relay->orders->detached) {
            continue; // the terminal that it was started from is gone
        } else if (caught_stops(number)) {
            relay->restarts = false;
            // Asked twice: now.
            relay->killed = relay->killed || (number == SIGINT && relay->asked_ms >= 0);
            relay_stop(relay, relay->orders->stop_signal);
        } else if (!relay->gone) {
            pass_on(relay, number);
        }
    }
    // Whoever reads our output has left: that would have ended any other program at its next word.
    if ((relay->out.failed == EPIPE || relay->err.failed == EPIPE) && relay->asked_ms < 0)
        relay_stop(relay, relay->orders->stop_signal);
}

static void read_input(struct relay *relay) {
    static char data[AHEAD];
    ssize_t length = read(0, data, relay->guest.on_port ? sizeof(data) : SERIAL_READ);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length > 0) {
        guest_input(&relay->guest, data, (size_t)length);
    } else { // its end, or the terminal is gone
        guest_input_end(&relay->guest);
        relay->reading = false;
    }
}

static void announce(struct relay *relay) {
    if (relay->waiting && !machine_wait(&relay->machine, 0))
        outlet_put(&relay->err, relay->waiting, strlen(relay->waiting));
    relay->waiting = NULL;
}

static struct pollfd watch_outlet(const struct outlet *outlet) {
    bool waits = bytes_left(&outlet->queue) > 0;
    return (struct pollfd){.fd = waits ? outlet->fd : -1, .events = POLLOUT};
}

// The container's program is executed: who waits for a machine in the background goes on.
static void tell_started(struct relay *relay) {
    if (!relay->orders->detached || relay->alone || !relay->guest.begun)
        return;
    relay->alone = true;
    if (relay->started >= 0 && write(relay->started, "", 1) != 1)
        relay->killed = true; // whoever asked for the machine has gone before it was there
    close_once(&relay->started);
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; nowhere >= 0 && fd < 3; fd++)
        dup2(nowhere, fd);
    close_once(&nowhere);
}

static void turn(struct relay *relay) {
    struct guest *guest = &relay->guest;
    bool reads = relay->reading && bytes_left(&guest->input) < AHEAD;
    struct pollfd watched[9 + CONTROL_POLLS] = {
        {.fd = relay->signals, .events = POLLIN},
        {.fd = is_held_back(relay) ? -1 : guest->in, .events = POLLIN},
        {.fd = guest_wants_write(guest) ? guest->out : -1, .events = POLLOUT},
        {.fd = reads ? 0 : -1, .events = POLLIN},
        {.fd = relay->machine.errors, .events = POLLIN},
        {.fd = relay->qmp.wanted && relay->qmp.state != QMP_GONE ? relay->qmp.fd : -1, .events = POLLIN},
        watch_outlet(&relay->out),
        watch_outlet(&relay->err),
        {.fd = is_held_back(relay) ? -1 : guest->console, .events = POLLIN},
    };
    size_t clients = control_polls(watched + 9);
    control_health(relay);
    if (poll(watched, 9 + clients, LOOK_MS) <= 0)
        return;
    control_ready(relay, watched + 9, clients);
    if (watched[6].revents)
        outlet_write(&relay->out);
    if (watched[7].revents)
        outlet_write(&relay->err);
    if (watched[4].revents)
        machine_listen(&relay->machine);
    if (watched[3].revents)
        read_input(relay);
    if (watched[1].revents || watched[8].revents) {
        if (watched[8].revents)
            guest_hear_console(guest);
        if (watched[1].revents)
            guest_hear(guest);
        relay->heard_ms = now_ms();
        announce(relay);
        tell_started(relay);
    }
    if (watched[2].revents)
        guest_write(guest);
    if (watched[5].revents && qmp_hear(&relay->qmp, relay->orders->cpu, relay->orders->halted) && !watched[1].revents &&
        !watched[8].revents)
        relay->finish = FINISH_HALTED;
    control_sweep();
}

static void start(struct relay *relay) {
    running = relay;
    machine_start(&relay->machine, relay->orders);
    relay->guest.output = on_output;
    relay->guest.further = on_further;
    relay->guest.told = relay->orders->told;
    guest_start(&relay->guest, relay->machine.key, relay->machine.serial_in, relay->machine.serial_out,
                relay->machine.line);
    qmp_start(&relay->qmp, relay->machine.control);
    relay->waiting = relay->orders->announce;
    relay->reading = relay->orders->interactive && !relay->orders->detached && !relay->orders->no_stdin;
    relay->grace_ms = relay->orders->grace_ms;
    relay->asked_ms = relay->ended_ms = relay->flush_ms = -1;
    relay->heard_ms = now_ms();
    relay->used = -1;
    relay->killed = relay->gone = false;
    relay->finish = FINISH_NONE;
    relay->state.status = "running";
    relay->state.started_ns = real_ns();
    relay->state.finished_ns = 0;
    relay->state.error[0] = '\0';
    state_save(&relay->state);
}

void relay_idle(struct relay *relay, int64_t wait_ms) {
    struct pollfd watched[1 + CONTROL_POLLS] = {{.fd = relay->signals, .events = POLLIN}};
    for (int64_t end = now_ms() + wait_ms, now; relay->restarts && (now = now_ms()) < end;) {
        size_t clients = control_polls(watched + 1);
        if (poll(watched, 1 + clients, (int)(end - now)) <= 0)
            continue;
        hear_signals(relay);
        control_ready(relay, watched + 1, clients);
    }
}

bool relay_await(struct relay *relay) {
    struct pollfd watched[1 + CONTROL_POLLS] = {{.fd = relay->signals, .events = POLLIN}};
    bool told = write(relay->started, "", 1) == 1;
    close_once(&relay->started);
    for (int64_t end = now_ms() + AWAIT_MS, now; told && relay->restarts && (now = now_ms()) < end;) {
        if (control_attached())
            return true;
        size_t clients = control_polls(watched + 1);
        if (poll(watched, 1 + clients, (int)(end - now)) <= 0)
            continue;
        hear_signals(relay);
        control_ready(relay, watched + 1, clients);
    }
    return false;
}

void relay_run(struct relay *relay) {
    const struct orders *orders = relay->orders;
    bool raw = orders->terminal && orders->interactive && !orders->detached && !orders->no_stdin && isatty(0);
    relay->slept = false;
    start(relay);
    if (raw)
        terminal_raw();
    while (relay->finish == FINISH_NONE) {
        hear_signals(relay);
        relay->finish = finished(relay);
        if (relay->finish == FINISH_NONE) {
            turn(relay);
        } else if (relay->finish == FINISH_SLEPT) {
            machine_stop(&relay->machine);
            start(relay);
        }
    }
    if (raw)
        terminal_restore();
    relay->gone = true;
    relay->finished_ms = now_ms();
    if (relay->finish == FINISH_CLOSED && !guest_ended(&relay->guest))
        machine_wait(&relay->machine, MONITOR_MS);
    relay->monitor_ended = machine_wait(&relay->machine, 0);
    machine_stop(&relay->machine);
    relay->guest.open = false; // what is still to be said goes nowhere
    log_flush();
}

static bool is_waiting(const struct relay *relay) {
    return bytes_left(&relay->out.queue) > 0 || bytes_left(&relay->err.queue) > 0;
}

static void drain_some(struct relay *relay, int64_t wait_ms) {
    struct pollfd watched[] = {
        {.fd = relay->signals, .events = POLLIN}, watch_outlet(&relay->out), watch_outlet(&relay->err)};
    if (poll(watched, 3, (int)(wait_ms < LOOK_MS ? wait_ms : LOOK_MS)) <= 0)
        return;
    if (watched[1].revents)
        outlet_write(&relay->out);
    if (watched[2].revents)
        outlet_write(&relay->err);
}

void relay_drain(struct relay *relay) {
    int64_t least = now_ms() + READER_MS, end, now;
    while (is_waiting(relay)) {
        hear_signals(relay);
        bool limited = relay->killed || (relay->asked_ms >= 0 && relay->grace_ms >= 0);
        end = relay->killed || !limited ? 0 : relay->asked_ms + relay->grace_ms;
        end = end > least ? end : least;
        now = now_ms();
        if (limited && now >= end)
            break;
        drain_some(relay, limited ? end - now : LOOK_MS);
    }
    uint64_t lost = outlet_close(&relay->out);
    if (lost > 0 && bytes_left(&relay->err.queue) == 0) {
        char line[100];
        int length = snprintf(line, sizeof(line), "vmtailor: %llu bytes of output were dropped: nobody read them\n",
                              (unsigned long long)lost);
        outlet_put(&relay->err, line, (size_t)length);
        for (end = now_ms() + READER_MS; is_waiting(relay) && (now = now_ms()) < end;)
            drain_some(relay, end - now);
    }
    if (outlet_close(&relay->err) > 0) {
        // Nobody reads standard error: what is still said there must not wait for that either.
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (nowhere >= 0)
            dup2(nowhere, 2);
    }
}
