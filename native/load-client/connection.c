/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void done(struct connection *connection, enum failure failure) {
    connection->progress = DONE;
    connection->failure = failure;
}

void connection_close(struct connection *connection) {
    if (connection->fd >= 0)
        close(connection->fd);
    connection->fd = -1;
}

void connection_give_up(struct connection *connection, enum failure failure) {
    if (connection->pid > 0)
        kill(-connection->pid, SIGKILL); /* the command, and all of its session */
    connection->pid = 0;
    connection_close(connection);
    done(connection, failure);
}

void connection_ask(struct connection *connection, struct page *page) {
    connection->page = page;
    connection->sent = 0;
    connection->heard = connection->closes = connection->unequal = false;
    connection->reused = connection->fd >= 0;
    connection->progress = connection->reused ? SENDING : CONNECTING;
    connection->length = connection->word = 0;
    connection->mix = UINT64_C(0x9e3779b97f4a7c15);
    connection->match = page->match;
    match_again(&connection->match);
    connection->digesting = page->sha256 != NULL && !page->known;
    if (connection->digesting)
        sha256_start(&connection->hash);
}

/* --- the body --- */

static void mix_word(struct connection *connection, uint64_t word) {
    uint64_t mix = (connection->mix ^ word) * UINT64_C(0xff51afd7ed558ccd);
    connection->mix = mix ^ mix >> 32;
}

/* Eight bytes at a time, whatever pieces they come in. */
static void mix_add(struct connection *connection, const char *data, size_t length) {
    unsigned held = (unsigned)(connection->length % 8);
    for (; length > 0 && held > 0; length--, data++) {
        connection->word |= (uint64_t)(uint8_t)*data << 8 * held++;
        if (held == 8) {
            mix_word(connection, connection->word);
            connection->word = held = 0;
        }
    }
    for (; length >= 8; length -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        mix_word(connection, word);
    }
    for (; length > 0; length--, data++)
        connection->word |= (uint64_t)(uint8_t)*data << 8 * held++;
}

static void take_body(void *context, const char *data, size_t length) {
    struct connection *connection = context;
    struct page *page = connection->page;
    if (page->sha256 != NULL)
        mix_add(connection, data, length);
    if (connection->digesting)
        sha256_add(&connection->hash, data, length);
    if (page->contains != NULL)
        match_add(&connection->match, data, length);
    if (page->answer != NULL) {
        size_t wanted = strlen(page->answer);
        connection->unequal |=
            connection->length + length > wanted || memcmp(page->answer + connection->length, data, length) != 0;
    }
    connection->length += length;
}

/* What is wrong with a whole answer, into `why`; false when nothing is. */
static bool wrong(struct connection *connection, int status, char why[200]) {
    struct page *page = connection->page;
    if (page->status >= 0 && status != page->status)
        return snprintf(why, 200, "%sstatus %d, not %d", page->program ? "exit " : "", status, page->status) > 0;
    if (page->answer != NULL && (connection->unequal || connection->length != strlen(page->answer)))
        return snprintf(why, 200, "the answer is not '%.100s'", page->answer) > 0;
    if (page->contains != NULL && !connection->match.found)
        return snprintf(why, 200, "does not contain '%.100s'", page->contains) > 0;
    if (page->sha256 == NULL)
        return false;
    mix_word(connection, connection->word);
    if (connection->digesting) {
        uint8_t digest[32];
        char hex[65];
        sha256_end(&connection->hash, digest);
        sha256_hex(digest, hex);
        if (strcmp(hex, page->sha256) != 0)
            return snprintf(why, 200, "%llu bytes with SHA-256 %.12s…, not %.12s…",
                            (unsigned long long)connection->length, hex, page->sha256) > 0;
        page->known = true;
        page->known_mix = connection->mix;
        page->known_length = connection->length;
    }
    if (page->known_mix != connection->mix || page->known_length != connection->length)
        return snprintf(why, 200, "%llu bytes that are not those of the first right answer",
                        (unsigned long long)connection->length) > 0;
    return false;
}

/* --- the socket --- */

static void failed(struct connection *connection, int error) {
    connection_close(connection);
    /* A server may close a connection that it keeps just when it is used again: the request is made anew. */
    if (connection->reused && !connection->heard) {
        connection_ask(connection, connection->page);
        return;
    }
    done(connection, error == ECONNREFUSED                                        ? REFUSED
                     : error == ECONNRESET || error == EPIPE || error == ENOTCONN ? RESET
                                                                                  : OTHER);
}

/* Returns whether it is connected, or failed. */
static bool open_socket(struct connection *connection, const struct plan *plan, int poller) {
    if (connection->fd >= 0) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0)
            failed(connection, error);
        else
            connection->progress = SENDING;
        return true;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan->port)};
    inet_pton(AF_INET, plan->address, &address.sin_addr);
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection->fd < 0) {
        failed(connection, errno);
        return true;
    }
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    int error = connect(connection->fd, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    if (poller >= 0 && (error == 0 || error == EINPROGRESS) &&
        epoll_ctl(poller, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        error = errno;
    if (error == EINPROGRESS)
        return false;
    if (error != 0)
        failed(connection, error);
    else
        connection->progress = SENDING;
    return true;
}

static bool send_request(struct connection *connection) {
    const struct page *page = connection->page;
    while (connection->sent < page->length) {
        ssize_t part =
            send(connection->fd, page->request + connection->sent, page->length - connection->sent, MSG_NOSIGNAL);
        if (part < 0 && errno == EAGAIN)
            return false;
        if (part < 0 && errno != EINTR) {
            failed(connection, errno);
            return true;
        }
        connection->sent += part > 0 ? (size_t)part : 0;
    }
    connection->progress = RECEIVING;
    return false; /* an answer takes its time, and its arrival is told */
}

void connection_take(struct connection *connection, const char *data, size_t length) {
    take_body(connection, data, length);
}

void connection_judge(struct connection *connection, int status, char why[200]) {
    bool is_wrong = wrong(connection, status, why);
    done(connection, is_wrong ? WRONG : RIGHT);
}

static void answered(struct connection *connection, const struct plan *plan, int status, char why[200]) {
    connection_judge(connection, status, why);
    if (!plan->keep || connection->closes)
        connection_close(connection);
}

static void bad_answer(struct connection *connection, const char *what, enum failure failure, char why[200]) {
    snprintf(why, 200, "%s", what);
    connection_give_up(connection, failure);
}

static bool receive(struct connection *connection, const struct plan *plan, char why[200]) {
    static char data[65536];
    struct http *http = &connection->reader.http;
    struct redis *redis = &connection->reader.redis;
    ssize_t got = recv(connection->fd, data, sizeof data, 0);
    if (got < 0 && errno == EAGAIN)
        return false;
    if (got < 0 && errno == EINTR)
        return true;
    if (got < 0 || (got == 0 && !connection->heard)) {
        failed(connection, got < 0 ? errno : ECONNRESET);
        return true;
    }
    if (!connection->heard) {
        if (plan->protocol == REDIS)
            redis_start(redis);
        else
            http_start(http, strcmp(connection->page->method, "HEAD") == 0);
    }
    connection->heard = true;
    if (got == 0) {
        connection->closes = true;
        if (plan->protocol == HTTP && http_end(http))
            answered(connection, plan, http->status, why);
        else
            bad_answer(connection, "the connection was closed before the answer was whole", RESET, why);
        return true;
    }
    if (plan->protocol == REDIS) {
        redis_add(redis, data, (size_t)got, take_body, connection);
        if (redis->state == REDIS_BAD)
            bad_answer(connection, "the answer is not Redis' protocol", WRONG, why);
        else if (redis->state == REDIS_DONE && redis->error)
            bad_answer(connection, "the server answered with an error", WRONG, why);
        else if (redis->state == REDIS_DONE)
            answered(connection, plan, 0, why);
        return true;
    }
    http_add(http, data, (size_t)got, take_body, connection);
    connection->closes = http->closes;
    if (http->state == HTTP_BAD)
        bad_answer(connection, "the answer is not HTTP", WRONG, why);
    else if (http->state == HTTP_DONE)
        answered(connection, plan, http->status, why);
    return true;
}

void connection_advance(struct connection *connection, const struct plan *plan, int poller, char why[200]) {
    bool more = true;
    while (more)
        more = connection->progress == CONNECTING  ? open_socket(connection, plan, poller)
               : connection->progress == SENDING   ? send_request(connection)
               : connection->progress == RECEIVING ? receive(connection, plan, why)
                                                   : false;
}
