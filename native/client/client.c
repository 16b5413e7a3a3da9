/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exercise's client: requests to the container over loopback, judged here, one verdict on standard output.
 *
 *     client until|count TIMEOUT_MS RECORD...      (records of one step, see common/records.h: "step http" ".port 80"
 * ...)
 *
 * `count` does the step as often as it says; `until` tries again until one answer is right or the time is up. A program
 * of its own, at addresses of its own, so that what it costs can be told from what the container costs. Loads have
 * another one (load-client): what this one's pages cost the kernel is in the figures of a step, so it has no more of
 * them than it needs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/http.h"
#include "common/records.h"
#include "common/verdict.h"

static struct match wanted;
static char fault[160];

static bool failed(struct answer *answer, const char *call) {
    snprintf(fault, sizeof fault, "%s: %s", call, strerror(errno));
    answer->error = fault;
    return false;
}

/* Wait until `fd` can be read or written. */
static bool wait_for(int fd, short events, uint64_t deadline) {
    struct pollfd wait = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now = now_ns();
        uint64_t left = deadline > now ? deadline - now : 0;
        int ready = ppoll(&wait, 1, &(struct timespec){(time_t)(left / 1000000000u), (long)(left % 1000000000u)}, NULL);
        if (ready > 0)
            return true;
        if (ready == 0)
            errno = ETIMEDOUT;
        if (ready == 0 || errno != EINTR)
            return false;
    }
}

static int connect_to(int port, uint64_t deadline, struct answer *answer) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        failed(answer, "socket");
        return -1;
    }
    int error = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        if (!wait_for(fd, POLLOUT, deadline))
            error = errno;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    if (error == 0)
        return fd;
    errno = error;
    failed(answer, "connect");
    close(fd);
    return -1;
}

static bool send_request(int fd, const struct step *step, uint64_t deadline, struct answer *answer) {
    char request[4096];
    int length = snprintf(request, sizeof request,
                          "%s %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: vmtailor\r\nAccept: */*\r\n"
                          "Connection: close\r\n\r\n",
                          step->method, step->path);
    if (length < 0 || (size_t)length >= sizeof request) {
        errno = ENAMETOOLONG;
        return failed(answer, "request");
    }
    for (int sent = 0; sent < length;) {
        ssize_t part = send(fd, request + sent, (size_t)(length - sent), MSG_NOSIGNAL);
        if (part < 0 && errno != EAGAIN && errno != EINTR)
            return failed(answer, "send");
        if (part < 0 && !wait_for(fd, POLLOUT, deadline))
            return failed(answer, "send");
        sent += part > 0 ? (int)part : 0;
    }
    return true;
}

static void take_body(void *context, const char *data, size_t length) {
    answer_add(context, data, length);
    match_add(&wanted, data, length);
}

static void receive(int fd, const struct step *step, uint64_t deadline, struct answer *answer) {
    static struct http http;
    static char data[65536];
    http_start(&http, strcmp(step->method, "HEAD") == 0);
    while (http.state != HTTP_DONE && http.state != HTTP_BAD) {
        ssize_t got = recv(fd, data, sizeof data, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!wait_for(fd, POLLIN, deadline)) {
                failed(answer, "recv");
                return;
            }
        } else if (got < 0) {
            failed(answer, "recv");
            return;
        } else if (got == 0) {
            if (!http_end(&http))
                answer->error = "the connection was closed before the answer was whole";
            break;
        } else {
            http_add(&http, data, (size_t)got, take_body, answer);
        }
    }
    answer->status = http.status;
    if (http.state == HTTP_BAD)
        answer->error = "the answer is not HTTP";
}

static void ask(const struct step *step, struct answer *answer, uint64_t most) {
    uint64_t deadline = now_ns() + (uint64_t)step->timeout_ms * 1000000u;
    deadline = deadline < most ? deadline : most;
    answer_start(answer);
    match_again(&wanted);
    int fd = connect_to(step->port, deadline, answer);
    if (fd >= 0 && step->kind == STEP_HTTP && send_request(fd, step, deadline, answer))
        receive(fd, step, deadline, answer);
    if (fd >= 0)
        close(fd);
    answer->contains = wanted.found;
    answer_end(answer);
}

/* Between two tries: a fiftieth of the time that has gone by, from 1 to 100 ms. Precise early, cheap late. */
static void pause_between(uint64_t started) {
    uint64_t wait = (now_ns() - started) / 50;
    wait = wait < 1000000u ? 1000000u : wait > 100000000u ? 100000000u : wait;
    nanosleep(&(struct timespec){0, (long)wait}, NULL);
}

/* Join the arguments to a text of records and read it. */
static const struct step *read_step(int count, char **records) {
    static struct settings settings;
    size_t length = sizeof "vmtailor 1";
    for (int i = 0; i < count; i++)
        length += strlen(records[i]) + 1;
    char *text = malloc(length), *end = text;
    if (text == NULL)
        return NULL;
    end = stpcpy(end, "vmtailor 1") + 1;
    for (int i = 0; i < count; i++)
        end = stpcpy(end, records[i]) + 1;
    settings_default(&settings);
    const char *wrong = settings_read(&settings, text, length);
    if (wrong != NULL) {
        fprintf(stderr, "client: %s\n", wrong);
        return NULL;
    }
    return settings.step_count == 1 ? &settings.steps[0] : &settings.ready;
}

int main(int argc, char **argv) {
    static struct verdict verdict;
    static struct answer answer;
    if (argc < 4) {
        fprintf(stderr, "use: client until|count TIMEOUT_MS RECORD...\n");
        return 2;
    }
    bool until = strcmp(argv[1], "until") == 0;
    uint64_t started = now_ns();
    uint64_t most = started + strtoull(argv[2], NULL, 10) * 1000000u;
    const struct step *step = read_step(argc - 3, argv + 3);
    if (step == NULL || !match_start(&wanted, step->contains))
        return 2;

    verdict_start(&verdict);
    if (until) {
        bool right = false;
        while (!right && now_ns() < most) {
            verdict_start(&verdict); /* what counts is the last try */
            ask(step, &answer, most);
            right = verdict_add(&verdict, step, &answer);
            if (!right)
                pause_between(started);
        }
    } else {
        for (int i = 0; i < step->repeat && now_ns() < most; i++) {
            ask(step, &answer, most);
            verdict_add(&verdict, step, &answer);
        }
    }
    char out[1900];
    size_t length = verdict_print(&verdict, out, sizeof out);
    return write(1, out, length) == (ssize_t)length && verdict.done == verdict.right ? 0 : 1;
}
