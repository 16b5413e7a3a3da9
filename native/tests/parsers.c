/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the parsers of init and client under the sanitizers over inputs from standard input, each with its length (4
 * bytes, little endian) before it, and prints what each made of it, one line an input.
 *
 *     parsers records|wire|port|http|user|registers|dhcp|question|net|redis|tuning < INPUTS
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "builtin/dhcp_message.h"
#include "common/http.h"
#include "common/records.h"
#include "common/verdict.h"
#include "common/wire.h"
#include "init/base/power_off.h"
#include "init/container/user.h"
#include "init/machine/net_words.h"
#include "init/machine/tuning.h"
#include "load-client/redis.h"
#include "supervise/qmp.h"

static void free_step(struct step *step) {
    free(step->argv.items);
}

static void try_surroundings(struct surroundings *more, bool shown) {
    if (more == NULL)
        return;
    struct list *lists[] = {&more->hosts, &more->resolver, &more->groups, &more->limits, &more->tmpfs, &more->sysctls};
    if (shown)
        printf(" read-only=%d no-new-privileges=%d shm=%s domain=%s oom=%s layer=%s rights=%s lists", more->read_only,
               more->no_new_privileges, more->shm, more->domain, more->oom, more->layer, more->rights);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (shown)
            printf(" %zu", lists[i]->count);
        free(lists[i]->items);
    }
    if (shown)
        printf("\n");
    free(more);
}

static void try_records(char *data, size_t length) {
    struct settings settings;
    settings_default(&settings);
    const char *wrong = settings_read(&settings, data, length);
    if (wrong != NULL)
        printf("wrong: %s\n", wrong);
    else
        printf("argv=%zu env=%zu steps=%zu stop=%d user=%s cwd=%s privileged=%d%s", settings.argv.count,
               settings.env.count, settings.step_count, settings.stop_signal, settings.user, settings.cwd,
               settings.privileged, settings.surroundings == NULL ? "\n" : "");
    try_surroundings(settings.surroundings, wrong == NULL);
    for (size_t i = 0; i < settings.step_count; i++)
        free_step(&settings.steps[i]);
    free_step(&settings.ready);
    free(settings.steps);
    free(settings.argv.items);
    free(settings.env.items);
    free(settings.volumes.items);
    free(settings.trace.items);
    free(settings.quiet.items);
}

static void print_frame(void *context, char type, const uint8_t *payload, size_t length) {
    (void)context;
    printf("%02x:", (unsigned char)type);
    for (size_t i = 0; i < length; i++)
        printf("%02x", payload[i]);
    printf(" ");
}

/* Of standard input, which comes in parts, only how much it is. */
static void print_or_count(void *context, char type, const uint8_t *payload, size_t length) {
    if (type == WIRE_STDIN)
        *(size_t *)context += length;
    else
        print_frame(NULL, type, payload, length);
}

/* As for the serial line. */
static void try_port(char *data, size_t length) {
    struct wire_port port = {.left = 0};
    size_t piece = length > 0 ? (unsigned char)data[0] + 1u : 1, stream = 0;
    bool fine = true;
    for (size_t at = 1; at < length && fine; at += piece) {
        size_t part = length - at < piece ? length - at : piece;
        char *copy = malloc(part);
        memcpy(copy, data + at, part);
        fine = wire_port_decode(&port, (uint8_t *)copy, part, print_or_count, &stream);
        free(copy);
    }
    printf("stream=%zu %s\n", stream, fine ? "fine" : "damaged");
}

/* The first byte says in what pieces the rest arrives. */
static void try_wire(char *data, size_t length) {
    struct wire_decoder decoder = {.length = 0};
    size_t piece = length > 0 ? (unsigned char)data[0] + 1u : 1;
    for (size_t at = 1; at < length; at += piece) {
        size_t part = length - at < piece ? length - at : piece;
        char *copy = malloc(part); /* its own memory, so that reading past it is seen */
        memcpy(copy, data + at, part);
        wire_decode(&decoder, (uint8_t *)copy, part, print_frame, NULL);
        free(copy);
    }
    printf("\n");
}

static void count_body(void *context, const char *data, size_t length) {
    answer_add(context, data, length);
}

static void try_http(char *data, size_t length) {
    static struct http http;
    static struct answer answer;
    char hex[65];
    size_t piece = length > 0 ? (unsigned char)data[0] + 1u : 1;
    http_start(&http, false);
    answer_start(&answer);
    for (size_t at = 1; at < length; at += piece)
        http_add(&http, data + at, length - at < piece ? length - at : piece, count_body, &answer);
    http_end(&http);
    answer_end(&answer);
    sha256_hex(answer.digest, hex);
    printf("%s %d %llu %s\n", http.state == HTTP_DONE ? "done" : "not", http.status, (unsigned long long)answer.length,
           hex);
}

static void try_redis(char *data, size_t length) {
    static struct redis redis;
    static struct answer answer;
    size_t piece = length > 0 ? (unsigned char)data[0] + 1u : 1;
    redis_start(&redis);
    answer_start(&answer);
    for (size_t at = 1; at < length; at += piece)
        redis_add(&redis, data + at, length - at < piece ? length - at : piece, count_body, &answer);
    printf("%s %d %llu\n",
           redis.state == REDIS_DONE  ? "done"
           : redis.state == REDIS_BAD ? "bad"
                                      : "more",
           redis.error, (unsigned long long)answer.length);
}

static void try_tuning(char *data, size_t length) {
    (void)length;
    setenv("VT_SET", data, 1);
    printf("%d %d\n", tuning_asks("/proc/sys/"), tuning_asks("/sys/"));
}

void fatal(const char *symbol, const char *format, ...) {
    printf("fatal %s%s\n", symbol, format);
    exit(4);
}

/* "USER NUL passwd NUL group NUL groups to add, separated by commas" */
static void try_user(char *data, size_t length) {
    (void)length;
    char *passwd = data + strlen(data) + 1;
    char *group = passwd + strlen(passwd) + 1;
    char *again = strdup(group), *wanted = group + strlen(group) + 1;
    struct list more = {0};
    struct identity identity;
    for (char *one = strtok(wanted, ","); one != NULL; one = strtok(NULL, ","))
        list_add(&more, one);
    const char *wrong = identity_parse(data, passwd, group, &identity);
    if (wrong == NULL && more.count > 0)
        wrong = identity_add(&identity, again, &more);
    free(again);
    free(more.items);
    if (wrong != NULL) {
        printf("wrong: %s\n", wrong);
        free(identity.groups);
        return;
    }
    printf("%u %u", identity.uid, identity.gid);
    for (size_t i = 0; i < identity.group_count; i++)
        printf(" %u", identity.groups[i]);
    printf(" %s\n", identity.home);
    free(identity.groups);
}

/* "pattern of a CPU NUL pattern of a halted one NUL lines of a monitor, which is asked for registers" */
static void try_registers(char *data, size_t length) {
    char *halted = data + strlen(data) + 1, *said = halted + strlen(halted) + 1;
    int ends[2];
    struct qmp qmp = {0};
    bool all = false;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        exit(3);
    qmp_start(&qmp, ends[0]);
    qmp_ask(&qmp);
    size_t before = (size_t)(said - data), left = length > before ? length - before : 0;
    if (write(ends[1], said, left) != (ssize_t)left || shutdown(ends[1], SHUT_WR) != 0)
        exit(3);
    while (qmp.state != QMP_GONE)
        all = qmp_hear(&qmp, data, halted) || all;
    printf("%s\n", all ? "halted" : "not");
    bytes_free(&qmp.heard);
    close(ends[0]);
    close(ends[1]);
}

/* An answer to the question 1234 of the card 2:0:0:0:0:1. */
static void try_dhcp(char *data, size_t length) {
    static const uint8_t mac[DHCP_MAC] = {2, 0, 0, 0, 0, 1};
    struct dhcp_answer answer;
    char own[16], gateway[16], dns[16], server[16];
    if (!dhcp_read((const uint8_t *)data, length, 1234, mac, &answer)) {
        printf("not\n");
        return;
    }
    inet_ntop(AF_INET, &answer.address, own, sizeof own);
    inet_ntop(AF_INET, &answer.gateway, gateway, sizeof gateway);
    inet_ntop(AF_INET, &answer.dns, dns, sizeof dns);
    inet_ntop(AF_INET, &answer.server, server, sizeof server);
    printf("%d %s/%d %s %s %s %u %u\n", (int)answer.kind, own, answer.prefix, gateway, dns, server, answer.lease_s,
           answer.renew_s);
}

/* What the client asks, in hex: of the first address, for the second one, of the server of the third. */
static void try_question(char *data, size_t length) {
    uint8_t message[DHCP_BYTES];
    struct dhcp_question question = {
        .kind = DHCP_REQUEST, .id = 1234, .mac = {2, 0, 0, 0, 0, 1}, .hostname = data + 12};
    if (length < 13 || data[length - 1] != '\0') {
        printf("not\n");
        return;
    }
    memcpy(&question.own, data, 4);
    memcpy(&question.wanted, data + 4, 4);
    memcpy(&question.server, data + 8, 4);
    size_t made = dhcp_write(&question, message);
    for (size_t i = 0; i < made; i++)
        printf("%02x", message[i]);
    printf("\n");
}

static void try_net(char *data, size_t length) {
    struct net_words net;
    (void)length;
    bool fine = net_words_read(&net, data);
    printf("%s %s/%d,%s,%s\n", fine ? "fine" : "wrong", net.address, net.prefix, net.gateway, net.dns);
}

static const struct {
    const char *name;
    void (*try)(char *data, size_t length);
} PARSERS[] = {{"records", try_records}, {"wire", try_wire},         {"port", try_port},
               {"http", try_http},       {"user", try_user},         {"registers", try_registers},
               {"dhcp", try_dhcp},       {"question", try_question}, {"net", try_net},
               {"redis", try_redis},     {"tuning", try_tuning}};

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 2 && i < sizeof PARSERS / sizeof *PARSERS; i++) {
        if (strcmp(PARSERS[i].name, argv[1]) != 0)
            continue;
        uint8_t head[4];
        while (fread(head, 1, 4, stdin) == 4) {
            size_t length = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
            /* Four NULs more, which the texts of these may lack; the others get their exact size. */
            void (*try)(char *, size_t) = PARSERS[i].try;
            size_t more = try == try_user || try == try_registers || try == try_net || try == try_tuning ? 4 : 0;
            char *data = calloc(1, length + more + (length + more == 0));
            if (data == NULL || fread(data, 1, length, stdin) != length)
                return 3;
            try(data, length);
            free(data);
        }
        return 0;
    }
    fprintf(stderr, "use: parsers records|wire|port|http|user|registers|dhcp|question|net|redis|tuning < INPUTS\n");
    return 2;
}
