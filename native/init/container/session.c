/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/signals.h"
#include "init/base/event_loop.h"
#include "init/base/serial_line.h"
#include "init/container/child.h"
#include "init/container/order.h"
#include "init/container/program.h"
#include "init/container/terminal.h"
#include "init/machine/capabilities.h"
#include "init/settings/settings.h"

#define MOST_SESSIONS 64 /* the loop of events has room for four streams of each */
#define MOST_NUMBER 250
#define MOST_ORDER (256 * 1024)
#define PIPE 65536
#define WINDOW 65536 /* bytes that may be under way, each way */
#define CREDIT_STEP (WINDOW / 2)
#define PATIENCE_NS 2000000000u /* for what others still write once the process has ended; as in Docker */

/* A place stays where it is once it was used: the loop of events may still have one of its watches in hand. */
struct session {
    uint8_t number; /* 0: free */
    pid_t pid;      /* 0: not started yet, or ended */
    bool ended, terminal, detached;
    struct watch out, err, in, status;
    char *text; /* the order, as far as it has come; then what its strings point into */
    size_t text_length;
    char *pending; /* from the host, not yet taken by the process */
    size_t pending_length, uncredited;
    bool stdin_ended;
    size_t credit;    /* bytes of output that the host has room for */
    size_t left_over; /* once it has ended: what its pipes may still hold of its own, for which the host is waited */
    uint64_t patient_until;
    int code, by_signal;
    char why[160];
};

/* Allocated with the first one: it would lie between what each boot uses. */
static struct {
    struct session *places[MOST_SESSIONS];
    size_t used; /* places from there on were never needed */
    char block[WIRE_BLOCK];
} * all;
static size_t count; /* those that have a number */
static bool closed;

static struct session *find(uint8_t number) {
    for (size_t i = 0; all != NULL && i < all->used; i++)
        if (all->places[i]->number == number)
            return all->places[i];
    return NULL;
}

static struct session *make_place(uint8_t number) {
    if (all == NULL && (all = calloc(1, sizeof *all)) == NULL)
        return NULL;
    struct session *place = find(0);
    if (place == NULL && all->used < MOST_SESSIONS && (place = malloc(sizeof *place)) != NULL)
        all->places[all->used++] = place;
    if (place == NULL)
        return NULL;
    *place = (struct session){.number = number, .credit = WINDOW};
    place->out.fd = place->err.fd = place->in.fd = place->status.fd = -1;
    count++;
    return place;
}

static void send_end(uint8_t number, int code, int by_signal, const char *why) {
    char text[200];
    int length = snprintf(text, sizeof text, "%c%d %d %s", number, code, by_signal, why);
    line_send(WIRE_FURTHER_EXIT, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

static void give_credit(const struct session *session, size_t bytes) {
    char text[16];
    if (bytes > 0)
        line_send(WIRE_FURTHER_CREDIT, text, (size_t)snprintf(text, sizeof text, "%c%zu", session->number, bytes));
}

static void close_stream(struct watch *watch) {
    if (watch->fd >= 0)
        loop_remove(watch);
}

static void finish(struct session *session) {
    struct watch *watches[] = {&session->out, &session->err, &session->in, &session->status};
    for (size_t i = 0; i < sizeof watches / sizeof *watches; i++)
        close_stream(watches[i]);
    free(session->text);
    free(session->pending);
    session->text = session->pending = NULL;
    session->pending_length = 0;
    uint8_t number = session->number;
    session->number = 0;
    session->pid = 0;
    count--;
    send_end(number, session->code, session->by_signal, session->why);
}

static void refuse(struct session *session, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void refuse(struct session *session, int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(session->why, sizeof session->why, format, args);
    va_end(args);
    session->code = code;
    finish(session);
}

/* --- its output --- */

static bool has_streams(const struct session *session) {
    return session->out.fd >= 0 || session->err.fd >= 0;
}

static void finish_if_done(struct session *session) {
    if (session->number != 0 && session->ended && !has_streams(session))
        finish(session);
}

static void relay(struct session *session, struct watch *watch, char type) {
    char small[WIRE_PAYLOAD];
    char *data = line_is_port() ? all->block : small;
    size_t room = (line_is_port() ? sizeof all->block : sizeof small) - 1;
    size_t most = session->credit < room ? session->credit : room;
    ssize_t got = most > 0 ? read(watch->fd, data + 1, most) : -1;
    if (got > 0) {
        data[0] = (char)session->number;
        line_send(type, data, (size_t)got + 1);
        session->credit -= (size_t)got;
        if (session->credit == 0)
            session->out.events = session->err.events = 0;
        if (session->ended)
            session->left_over -= (size_t)got < session->left_over ? (size_t)got : session->left_over;
    } else if (got == 0 || (most > 0 && errno != EAGAIN && errno != EINTR)) {
        loop_remove(watch); /* end of file; on a terminal, EIO */
        finish_if_done(session);
    }
}

#define SESSION_OF(watch, member) ((struct session *)(void *)((char *)(watch)-offsetof(struct session, member)))

static void relay_out(struct watch *watch, short events) {
    (void)events;
    relay(SESSION_OF(watch, out), watch, WIRE_FURTHER_STDOUT);
}

static void relay_err(struct watch *watch, short events) {
    (void)events;
    relay(SESSION_OF(watch, err), watch, WIRE_FURTHER_STDERR);
}

static void take_credit(struct session *session, size_t bytes) {
    session->credit = bytes < WINDOW - session->credit ? session->credit + bytes : WINDOW;
    if (session->credit > 0)
        session->out.events = session->err.events = POLLIN;
    if (session->left_over > 0)
        session->patient_until = now_ns() + PATIENCE_NS;
}

/* --- its input --- */

static void close_stdin(struct session *session) {
    if (!session->terminal)
        close_stream(&session->in);
    else if (write(session->in.fd, "\x04", 1) < 0 && errno == EAGAIN)
        return;
    session->stdin_ended = false;
}

static void feed(struct watch *watch, short events) {
    (void)events;
    struct session *session = SESSION_OF(watch, in);
    ssize_t written = session->pending_length > 0 ? write(watch->fd, session->pending, session->pending_length) : 0;
    if (written < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    size_t taken = written < 0 ? session->pending_length : (size_t)written; /* nobody reads: dropped */
    session->pending_length -= taken;
    memmove(session->pending, session->pending + taken, session->pending_length);
    session->uncredited += taken;
    if (!line_is_port() || session->uncredited >= CREDIT_STEP || session->pending_length == 0) {
        give_credit(session, session->uncredited);
        session->uncredited = 0;
    }
    if (written < 0)
        loop_remove(watch);
    else if (session->pending_length == 0) {
        watch->events = 0;
        if (session->stdin_ended)
            close_stdin(session);
    }
}

static void take_stdin(struct session *session, const uint8_t *data, size_t length) {
    if (session->in.fd < 0) { /* nobody reads it: the host may go on, to nothing */
        give_credit(session, length);
        return;
    }
    if (length > WINDOW - session->pending_length)
        length = WINDOW - session->pending_length; /* more than the credit we gave */
    memcpy(session->pending + session->pending_length, data, length);
    session->pending_length += length;
    session->in.events = POLLOUT;
}

static void end_stdin(struct session *session) {
    if (session->in.fd < 0)
        return;
    session->stdin_ended = true;
    session->in.events = POLLOUT;
}

/* --- its start and its end --- */

static void take_status(struct session *session) {
    struct child_status status;
    ssize_t got = read(session->status.fd, &status, sizeof status);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got != (ssize_t)sizeof status) {
        loop_remove(&session->status);
        return;
    }
    status.call[sizeof status.call - 1] = '\0';
    status.symbol[sizeof status.symbol - 1] = '\0';
    if (status.error != 0)
        snprintf(session->why, sizeof session->why, "%s: %s", status.call, strerror(status.error));
    else
        snprintf(session->why, sizeof session->why, "%s", status.call);
    if (status.symbol[0] != '\0')
        line_note(status.symbol, "%s", session->why);
}

static void hear_status(struct watch *watch, short events) {
    (void)events;
    struct session *session = SESSION_OF(watch, status);
    take_status(session);
    if (watch->fd < 0 && session->detached && session->why[0] == '\0')
        finish(session); /* it is executed: nobody waits for more */
}

static void stream(struct watch *watch, int fd, short events, void (*ready)(struct watch *watch, short events)) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    loop_add(watch, fd, events, ready);
}

/* The container's ends of its streams; ours are watched. False and errno. */
static bool open_pipes(struct session *session, const struct order *order, struct stdio *theirs) {
    int to[2] = {-1, -1}, from[2], from_err[2];
    if (order->takes_stdin ? pipe2(to, O_CLOEXEC) != 0 : (to[0] = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0)
        return false;
    theirs->in = to[0];
    if (to[1] >= 0)
        stream(&session->in, to[1], 0, feed);
    if (order->detach) {
        theirs->out = fcntl(to[0], F_DUPFD_CLOEXEC, 3);
        theirs->err = fcntl(to[0], F_DUPFD_CLOEXEC, 3);
        return theirs->out >= 0 && theirs->err >= 0;
    }
    if (pipe2(from, O_CLOEXEC) != 0)
        return false;
    theirs->out = from[1];
    stream(&session->out, from[0], POLLIN, relay_out);
    if (pipe2(from_err, O_CLOEXEC) != 0)
        return false;
    theirs->err = from_err[1];
    stream(&session->err, from_err[0], POLLIN, relay_err);
    return true;
}

static bool open_terminal(struct session *session, const struct order *order, struct stdio *theirs, char *path) {
    int slave;
    int master = terminal_open(order->rows, order->cols, &slave, path);
    if (master < 0)
        return false;
    *theirs = (struct stdio){slave, slave, slave, true};
    stream(&session->out, master, POLLIN, relay_out);
    int again = order->takes_stdin ? fcntl(master, F_DUPFD_CLOEXEC, 3) : -1;
    if (again >= 0)
        stream(&session->in, again, 0, feed);
    return true;
}

static void close_theirs(const struct stdio *theirs) {
    int each[] = {theirs->in, theirs->out, theirs->err};
    for (int i = 0; i < (theirs->terminal ? 1 : 3); i++)
        if (each[i] >= 0)
            close(each[i]);
}

static void start(struct session *session, struct order *order) {
    struct stdio theirs = {-1, -1, -1, false};
    char path[TERMINAL_PATH] = "a pipe";
    int status = -1;
    if (order->privileged && capabilities_limited()) {
        refuse(session, CANNOT_EXECUTE, "privileged: the container is not, and what its root may do stays as it began");
        return;
    }
    session->detached = order->detach;
    session->terminal = order->terminal && !order->detach;
    order->takes_stdin = order->takes_stdin && !order->detach;
    if (order->takes_stdin && (session->pending = malloc(WINDOW)) == NULL) {
        refuse(session, CANNOT_EXECUTE, "no memory");
        return;
    }
    bool opened =
        session->terminal ? open_terminal(session, order, &theirs, path) : open_pipes(session, order, &theirs);
    session->pid = opened ? child_further(order, theirs, &status) : -1;
    int error = errno;
    close_theirs(&theirs);
    if (session->pid < 0)
        refuse(session, CANNOT_EXECUTE, "%s%s: %s", opened ? "fork" : "open ", opened ? "" : path, strerror(error));
    else
        stream(&session->status, status, POLLIN, hear_status);
}

static void take_order(struct session *session, const uint8_t *data, size_t length) {
    struct order order;
    char *more =
        length <= MOST_ORDER - session->text_length ? realloc(session->text, session->text_length + length + 1) : NULL;
    if (more == NULL) {
        refuse(session, CANNOT_EXECUTE, "the order is longer than %d bytes, or there is no memory", MOST_ORDER);
        return;
    }
    session->text = more;
    memcpy(more + session->text_length, data, length);
    session->text_length += length;
    if (!order_is_whole(more, session->text_length))
        return;
    const char *wrong = order_read(&order, more, session->text_length);
    if (wrong != NULL)
        refuse(session, CANNOT_EXECUTE, "the order: %s", wrong);
    else
        start(session, &order);
    order_free(&order);
    free(session->text);
    session->text = NULL;
}

bool session_exit(pid_t pid, int status) {
    for (size_t i = 0; count > 0 && i < all->used; i++) {
        struct session *session = all->places[i];
        if (session->number == 0 || session->pid != pid)
            continue;
        session->pid = 0;
        session->ended = true;
        session->by_signal = WIFSIGNALED(status) ? signal_said(WTERMSIG(status)) : 0;
        session->code = session->by_signal != 0 ? 128 + session->by_signal : WEXITSTATUS(status);
        if (session->status.fd >= 0)
            take_status(session);
        session->left_over = 2 * PIPE;
        session->patient_until = now_ns() + PATIENCE_NS;
        finish_if_done(session);
        return true;
    }
    return false;
}

uint64_t sessions_advance(void) {
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; count > 0 && i < all->used; i++) {
        struct session *session = all->places[i];
        if (session->number == 0 || !session->ended || (session->credit == 0 && session->left_over > 0))
            continue;
        if (now_ns() >= session->patient_until)
            finish(session); /* another process has its streams */
        else if (session->patient_until < next)
            next = session->patient_until;
    }
    return next;
}

void sessions_close(void) {
    closed = true;
}

bool sessions_open(void) {
    for (size_t i = 0; count > 0 && i < all->used; i++)
        if (all->places[i]->number != 0 && has_streams(all->places[i]) && all->places[i]->credit > 0)
            return true;
    return false;
}

void sessions_end(void) {
    for (size_t i = 0; count > 0 && i < all->used; i++) {
        struct session *session = all->places[i];
        if (session->number == 0)
            continue;
        if (!session->ended) {
            session->code = 128 + SIGKILL;
            session->by_signal = SIGKILL;
        }
        finish(session);
    }
}

/* --- frames --- */

static void take_signal(struct session *session, int number) {
    if (session->pid > 0 && number > 0 && number <= 64)
        kill(session->pid, signal_here(number));
}

static void begin(uint8_t number, const uint8_t *data, size_t length) {
    struct session *session = find(number);
    if (number > MOST_NUMBER || (session != NULL && session->text == NULL))
        return; /* it runs already */
    if (closed)
        send_end(number, CANNOT_EXECUTE, 0, "the container has ended");
    else if (session != NULL || (session = make_place(number)) != NULL)
        take_order(session, data, length);
    else
        send_end(number, CANNOT_EXECUTE, 0, "too many further processes at once");
}

void session_frame(char type, const uint8_t *payload, size_t length) {
    if (length == 0 || payload[0] == 0)
        return;
    const uint8_t *data = payload + 1;
    length--;
    if (type == WIRE_FURTHER) {
        begin(payload[0], data, length);
        return;
    }
    struct session *session = find(payload[0]);
    char text[32] = "";
    if (session == NULL || session->text != NULL)
        return;
    memcpy(text, data, length < sizeof text - 1 ? length : sizeof text - 1);
    switch (type) {
    case WIRE_FURTHER_STDIN:
        take_stdin(session, data, length);
        break;
    case WIRE_FURTHER_STDIN_END:
        end_stdin(session);
        break;
    case WIRE_FURTHER_SIGNAL:
        take_signal(session, atoi(text));
        break;
    case WIRE_FURTHER_WINDOW:
        if (session->terminal && session->out.fd >= 0)
            terminal_resize(session->out.fd, text);
        break;
    case WIRE_FURTHER_TAKEN:
        take_credit(session, strtoul(text, NULL, 10));
        break;
    }
}
