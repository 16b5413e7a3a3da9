/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/stage.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "load-client/command.h"
#include "load-client/due.h"
#include "load-client/random.h"

#define EVENTS 64
#define FAILS_AT_LEAST 100 /* failures without any right answer, after which nobody is expected to answer */
#define SECOND 1000000000.0

static struct connection *connections;
static struct due due;
static struct pollfd *polled; /* where the kernel has no epoll that waits for nanoseconds */
static struct connection **by_poll;
static int poller = -1;

/* Of the stage that runs. */
static struct {
    struct stage *stage;
    struct plan *plan;
    uint64_t start, limit;
    uint64_t sessions, begun;  /* in all; so many have begun */
    double next, period;       /* an open loop's next session (ns from the start), and the mean time between two */
    uint64_t pauses, arrivals; /* states of random numbers */
    uint64_t open, failed_in_a_row;
    uint64_t asked; /* requests, over all connections: whose turn it is among the pages of a closed loop */
} run;

bool stage_prepare(struct plan *plan) {
    struct rlimit files = {plan->at_once + 64, plan->at_once + 64}, now;
    if (getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur < files.rlim_cur) {
        files.rlim_max = now.rlim_max > files.rlim_max ? now.rlim_max : files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    connections = calloc(plan->at_once, sizeof *connections);
    due.items = calloc(plan->at_once + 1, sizeof(struct connection *));
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event none = {.events = 0};
#ifdef SYS_epoll_pwait2
    if (poller >= 0 && syscall(SYS_epoll_pwait2, poller, &none, 1, &(struct timespec){0, 0}, NULL, 0) < 0) {
        close(poller);
        poller = -1;
    }
#else
    poller = -1;
#endif
    if (poller < 0) {
        polled = calloc(plan->at_once + 1, sizeof *polled);
        by_poll = calloc(plan->at_once + 1, sizeof(struct connection *));
    }
    if (plan->protocol == COMMAND) {
        if (!command_prepare(plan))
            return false;
        none = (struct epoll_event){.events = EPOLLIN, .data.ptr = NULL};
        if (poller >= 0 && epoll_ctl(poller, EPOLL_CTL_ADD, command_errors(), &none) != 0)
            return false;
    }
    for (unsigned i = 0; connections != NULL && i < plan->at_once; i++)
        connections[i].fd = -1;
    return connections != NULL && due.items != NULL && (poller >= 0 || (polled != NULL && by_poll != NULL));
}

/* --- requests and sessions --- */

static struct page *next_page(const struct connection *connection) {
    struct plan *plan = run.plan;
    uint64_t turn = plan->keep_between || plan->calls == 1 ? run.asked : connection->call;
    return &plan->pages[turn % plan->page_count];
}

static void advance(struct connection *connection);

static void ask(struct connection *connection, uint64_t now) {
    struct stage *stage = run.stage;
    uint64_t late = now - connection->scheduled;
    stage->late_ns += late;
    stage->latest_ns = late > stage->latest_ns ? late : stage->latest_ns;
    stage->asked++;
    connection_ask(connection, next_page(connection));
    run.asked++;
    stage->connections += !connection->reused;
    connection->due = connection->scheduled + run.plan->timeout_ns;
    due_set(&due, connection);
    advance(connection);
}

static void session_ends(struct connection *connection) {
    if (!run.plan->keep_between)
        connection_close(connection);
    due_remove(&due, connection);
    connection->progress = FREE;
    run.open--;
}

static uint64_t pause_ns(void) {
    uint64_t width = run.plan->pause_most_ns - run.plan->pause_least_ns;
    return run.plan->pause_least_ns + (uint64_t)((double)width * random_share(&run.pauses));
}

/* A request has its answer or none: count it, and say when the connection's next one is due. */
static void take_end(struct connection *connection, uint64_t now) {
    struct stage *stage = run.stage;
    stage->ends[connection->failure]++;
    stage->took_ns = now - run.start;
    if (connection->failure == RIGHT) {
        histogram_add(&stage->latency, now - connection->scheduled);
        run.failed_in_a_row = 0;
    } else
        run.failed_in_a_row++;
    if (++connection->call >= run.plan->calls || connection->failure != RIGHT) {
        session_ends(connection);
        return;
    }
    connection->scheduled = now + pause_ns();
    connection->due = connection->scheduled;
    connection->progress = PAUSED;
    due_set(&due, connection);
}

static void advance(struct connection *connection) {
    if (run.plan->protocol != COMMAND)
        connection_advance(connection, run.plan, poller, run.stage->why);
    else if (connection->progress == CONNECTING)
        command_start(connection, poller, run.stage->why);
    else
        command_read(connection);
    if (connection->progress == DONE)
        take_end(connection, now_ns());
}

/* --- sessions that begin --- */

static bool more_sessions(void) {
    return run.begun < run.sessions && !run.stage->gave_up;
}

static uint64_t next_session(void) {
    return run.stage->rate > 0 ? run.start + (uint64_t)run.next : 0;
}

static void plan_next_session(void) {
    run.begun++;
    if (run.plan->random)
        run.next -= log(1.0 - random_share(&run.arrivals)) * run.period;
    else
        run.next = (double)run.begun * run.period;
}

/* Those whose time was over before a connection was free for them. */
static void drop_late(uint64_t now) {
    while (run.stage->rate > 0 && more_sessions() && next_session() + run.plan->timeout_ns <= now) {
        run.stage->asked += run.plan->calls;
        run.stage->ends[UNSENT] += run.plan->calls;
        plan_next_session();
    }
}

static void begin_sessions(uint64_t now) {
    static unsigned last;
    unsigned at_once = (unsigned)run.plan->at_once;
    drop_late(now);
    while (more_sessions() && run.open < at_once && next_session() <= now) {
        while (connections[last % at_once].progress != FREE)
            last++;
        struct connection *connection = &connections[last++ % at_once];
        connection->session = run.begun;
        connection->call = 0;
        connection->scheduled = run.stage->rate > 0 ? next_session() : now;
        plan_next_session();
        run.open++;
        ask(connection, now);
        now = now_ns();
    }
}

/* --- waiting --- */

/* NULL: those that are blocked now. */
static const sigset_t *signals(void) {
    return run.plan->protocol == COMMAND ? command_signals() : NULL;
}

/* Without a connection, a command's standard error. */
static void came(struct connection *connection) {
    if (connection == NULL)
        command_take_errors();
    else
        advance(connection);
}

static void wait_by_epoll(const struct timespec *left) {
    struct epoll_event events[EVENTS];
    long count = 0;
#ifdef SYS_epoll_pwait2
    count = syscall(SYS_epoll_pwait2, poller, events, EVENTS, left, signals(), _NSIG / 8);
#else
    (void)left;
#endif
    for (long i = 0; i < count; i++)
        came(events[i].data.ptr);
}

static void wait_by_poll(const struct timespec *left) {
    unsigned count = 0;
    for (unsigned i = 0; i < run.plan->at_once; i++) {
        struct connection *connection = &connections[i];
        if (connection->progress != CONNECTING && connection->progress != SENDING && connection->progress != RECEIVING)
            continue;
        polled[count] = (struct pollfd){connection->fd, connection->progress == RECEIVING ? POLLIN : POLLOUT, 0};
        by_poll[count++] = connection;
    }
    if (run.plan->protocol == COMMAND) {
        polled[count] = (struct pollfd){command_errors(), POLLIN, 0};
        by_poll[count++] = NULL;
    }
    if (ppoll(polled, count, left, signals()) <= 0)
        return;
    for (unsigned i = 0; i < count; i++)
        if (polled[i].revents != 0)
            came(by_poll[i]);
}

static void wait_until(uint64_t then) {
    uint64_t now = now_ns();
    uint64_t left = then > now ? then - now : 0;
    struct timespec time = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
    if (poller >= 0)
        wait_by_epoll(&time);
    else
        wait_by_poll(&time);
    struct connection *ended;
    while (run.plan->protocol == COMMAND &&
           (ended = command_next_end(connections, (unsigned)run.plan->at_once, run.stage->why)) != NULL)
        take_end(ended, now_ns());
}

static void end_what_is_due(uint64_t now) {
    while (due.count > 0 && due.items[1]->due <= now) {
        struct connection *connection = due.items[1];
        if (connection->progress == PAUSED) {
            ask(connection, now);
        } else {
            connection_give_up(connection, TIMEOUT);
            take_end(connection, now);
        }
    }
}

static void give_up(void) {
    run.stage->gave_up = true;
    for (unsigned i = 0; i < run.plan->at_once; i++) {
        struct connection *connection = &connections[i];
        if (connection->progress == FREE)
            continue;
        if (connection->progress != PAUSED) {
            connection_give_up(connection, TIMEOUT);
            run.stage->ends[TIMEOUT]++;
        }
        session_ends(connection);
    }
    run.stage->took_ns = now_ns() - run.start;
}

static void start(struct stage *stage, struct plan *plan, uint64_t rate, uint64_t limit) {
    memset(stage, 0, sizeof *stage);
    histogram_start(&stage->latency);
    stage->rate = rate;
    memset(&run, 0, sizeof run);
    run.stage = stage;
    run.plan = plan;
    run.limit = limit;
    run.pauses = plan->seed;
    run.arrivals = ~plan->seed;
    run.sessions = plan->sessions;
    if (rate > 0) {
        double sessions_a_second = (double)rate / 1000.0 / (double)plan->calls;
        double sessions = sessions_a_second * (double)plan->stage_ns / SECOND;
        run.period = SECOND / sessions_a_second;
        run.sessions = sessions < 1 ? 1 : sessions > UINT32_MAX ? UINT32_MAX : (uint64_t)(sessions + 0.5);
        stage->offered_ns = (uint64_t)((double)run.sessions * run.period);
    }
    run.start = now_ns();
}

void stage_run(struct stage *stage, struct plan *plan, uint64_t rate, uint64_t limit) {
    start(stage, plan, rate, limit);
    for (;;) {
        uint64_t now = now_ns();
        uint64_t most = 2 * plan->at_once > FAILS_AT_LEAST ? 2 * plan->at_once : FAILS_AT_LEAST;
        if (now >= limit || (stage->ends[RIGHT] == 0 && run.failed_in_a_row >= most))
            give_up();
        begin_sessions(now);
        end_what_is_due(now_ns());
        if (run.open == 0 && !more_sessions())
            break;
        uint64_t then = limit;
        if (due.count > 0 && due.items[1]->due < then)
            then = due.items[1]->due;
        if (more_sessions() && run.open < plan->at_once && next_session() < then)
            then = next_session();
        wait_until(then);
    }
    for (unsigned i = 0; i < plan->at_once; i++)
        connection_close(&connections[i]);
}

bool stage_held(const struct stage *stage) {
    return stage->ends[RIGHT] == stage->asked && stage->asked > 0 && stage->took_ns / 101 <= stage->offered_ns / 100;
}
