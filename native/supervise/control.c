// SPDX-License-Identifier: Apache-2.0
#include "supervise/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HEAD 5
#define MOST_PAYLOAD 65536
#define MOST_SESSION 250
#define WINDOW 65536       // bytes of a further process that may be under way, each way
#define SERIAL_WINDOW 2048 // to the guest on a serial line, which has no other flow control
#define TAKEN 16384        // bytes after which the guest is told that they were taken
#define LAST_MS 1000       // for answers that nobody has read when the machine has ended

enum role { ROLE_NEW, ROLE_ANSWERED, ROLE_WAIT, ROLE_ATTACHED, ROLE_SESSION, ROLE_STATS, ROLE_ENDING };

struct client {
    int fd; // -1: the place is free
    enum role role;
    bool input, ends; // ends: closed once all is sent
    uint8_t session;
    size_t credit, untold; // of a session: bytes that the guest takes, and bytes of its output that it was not told of
    struct bytes heard, waiting; // waiting: standard input of a session
    bool input_ended;
    struct outlet out;
};

static struct client clients[MOST_CLIENTS];
static int listening = -1;
static struct relay *served;

// The health check, which is a further process that nobody asked for.
static struct {
    uint8_t session;
    int64_t next_ms, until_ms, failed, born_ms;
    bool was_good; // since the start: from then on failed checks count
} health;

static uint8_t last_session;

static void close_client(struct client *client) {
    if (client->session) {
        char text[8];
        int length = snprintf(text, sizeof(text), "%c9", client->session);
        guest_frame(&served->guest, 'q', text, (size_t)length);
    }
    outlet_close(&client->out);
    bytes_free(&client->heard);
    bytes_free(&client->waiting);
    close(client->fd);
    *client = (struct client){.fd = -1};
}

static void send_frame(struct client *client, char type, const void *payload, size_t length) {
    uint8_t head[HEAD] = {(uint8_t)type, (uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16), 0};
    outlet_put(&client->out, head, HEAD);
    outlet_put(&client->out, payload, length);
}

static void send_text(struct client *client, char type, const char *text) {
    send_frame(client, type, text, strlen(text));
}

static void refuse(struct client *client, const char *why) {
    send_text(client, 'F', why);
    client->role = ROLE_ENDING;
    client->ends = true;
}

static void send_exit(struct client *client, int code, int signal, const char *why) {
    char text[512];
    snprintf(text, sizeof(text), "%d %d %s", code, signal, why ? why : "");
    send_text(client, 'X', text);
    client->role = ROLE_ENDING;
    client->ends = true;
}

// --- what is asked: records, "do VERB" before all others

struct request {
    const char *verb;
    char *records; // behind the first
    size_t length;
};

static const char *record(const struct request *request, const char *key) {
    size_t size = strlen(key);
    for (char *at = request->records; at < request->records + request->length; at += strlen(at) + 1)
        if (!strncmp(at, key, size) && at[size] == ' ')
            return at + size + 1;
    return NULL;
}

static int64_t number(const struct request *request, const char *key, int64_t otherwise) {
    const char *text = record(request, key);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

// --- further processes

static struct client *of_session(uint8_t session) {
    for (size_t i = 0; i < MOST_CLIENTS; i++)
        if (clients[i].fd >= 0 && clients[i].session == session)
            return &clients[i];
    return NULL;
}

static uint8_t free_session(void) {
    for (int i = 0; i < MOST_SESSION; i++) {
        last_session = (uint8_t)(last_session % MOST_SESSION + 1);
        if (!of_session(last_session) && last_session != health.session)
            return last_session;
    }
    return 0;
}

static void send_session(uint8_t session, char type, const uint8_t *data, size_t length) {
    uint8_t payload[WIRE_PAYLOAD];
    size_t part;
    do {
        part = length < sizeof(payload) - 1 ? length : sizeof(payload) - 1;
        payload[0] = session;
        if (part)
            memcpy(payload + 1, data, part);
        guest_frame(&served->guest, type, payload, part + 1);
        data += part;
        length -= part;
    } while (length > 0);
}

static void start_session(uint8_t session, const char *builtin, const char *records, size_t length) {
    struct bytes text = {0};
    char line[64];
    bytes_add(&text, "vmtailor 1", 11);
    if (builtin)
        bytes_add(&text, line, (size_t)snprintf(line, sizeof(line), "builtin %s", builtin) + 1);
    if (builtin && !strcmp(builtin, "extract"))
        bytes_add(&text, "stdin 1", 8);
    bytes_add(&text, records, length);
    bytes_add(&text, "", 1);
    send_session(session, 'x', bytes_first(&text), bytes_left(&text));
    bytes_free(&text);
}

static void begin_session(struct client *client, const struct request *request, const char *builtin, enum role role) {
    if (!served->guest.open || !served->guest.listening || guest_ended(&served->guest)) {
        refuse(client, "the container does not run");
        return;
    }
    if (!served->orders->builtins) {
        refuse(client, "the init of this machine is of an older version: fit the image again");
        return;
    }
    client->session = free_session();
    if (!client->session) {
        refuse(client, "too many further processes at once");
        return;
    }
    client->role = role;
    client->credit = served->guest.on_port ? WINDOW : SERIAL_WINDOW;
    start_session(client->session, builtin, request ? request->records : NULL, request ? request->length : 0);
}

static void feed_session(struct client *client) {
    while (client->session && client->credit > 0 && bytes_left(&client->waiting) > 0) {
        size_t part = bytes_left(&client->waiting);
        part = part > WIRE_PAYLOAD / 2 ? WIRE_PAYLOAD / 2 : part;
        part = part > client->credit ? client->credit : part;
        send_session(client->session, 'j', bytes_first(&client->waiting), part);
        client->credit -= part;
        bytes_drop(&client->waiting, part);
    }
    if (client->session && client->input_ended && bytes_left(&client->waiting) == 0) {
        client->input_ended = false;
        send_session(client->session, 'k', NULL, 0);
    }
}

// Tell the guest of output that was taken: only once it has found room here.
static void tell_taken(struct client *client) {
    char text[24];
    if (!client->session || client->untold < TAKEN || outlet_full(&client->out))
        return;
    int length = snprintf(text, sizeof(text), "%zu", client->untold);
    client->untold = 0;
    send_session(client->session, 'u', (uint8_t *)text, (size_t)length);
}

static void end_health(int code);

static void on_session(struct client *client, char type, const uint8_t *data, size_t length) {
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)(length < 200 ? length : 200), length ? (const char *)data : "");
    switch (type) {
    case 'o':
    case 'p':
        client->untold += length;
        if (client->role == ROLE_STATS)
            bytes_add_head(&client->waiting, data, length, MOST_PAYLOAD / 2);
        else
            send_frame(client, type == 'o' ? 'O' : 'E', data, length);
        tell_taken(client);
        break;
    case 'c':
        client->credit += (size_t)strtoul(text, NULL, 10) & 0xFFFFF;
        client->credit = client->credit > WINDOW ? WINDOW : client->credit;
        feed_session(client);
        break;
    case 'y':
        client->session = 0;
        if (client->role == ROLE_STATS) {
            send_frame(client, 'R', bytes_first(&client->waiting), bytes_left(&client->waiting));
            client->role = ROLE_ANSWERED;
        } else {
            send_text(client, 'X', text);
            client->role = ROLE_ENDING;
            client->ends = true;
        }
        break;
    }
}

void control_session_frame(struct relay *relay, char type, const uint8_t *payload, size_t length) {
    char text[24];
    if (length == 0 || !payload[0])
        return;
    struct client *client = of_session(payload[0]);
    if (client) {
        on_session(client, type, payload + 1, length - 1);
    } else if (payload[0] == health.session && type == 'y') {
        snprintf(text, sizeof(text), "%.*s", (int)(length - 1 < 20 ? length - 1 : 20), (const char *)payload + 1);
        end_health(atoi(text));
    } else if (type == 'o' || type == 'p') { // nobody reads it: the process is not to wait for that
        int size = snprintf(text, sizeof(text), "%c%zu", payload[0], length - 1);
        guest_frame(&relay->guest, 'u', text, (size_t)size);
    }
}

// --- verbs

static void answer_state(struct client *client) {
    struct bytes text = {0};
    state_records(&served->state, &text);
    send_frame(client, 'R', bytes_first(&text), bytes_left(&text));
    bytes_free(&text);
    client->role = ROLE_ANSWERED;
}

// Processor time and memory of the monitor's process, from /proc.
static void add_use(struct bytes *text) {
    char path[64], line[1024], number[64];
    unsigned long long user = 0, system = 0, resident = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", served->machine.pid);
    FILE *file = fopen(path, "re");
    if (file && fgets(line, sizeof(line), file)) {
        char *at = strrchr(line, ')');
        if (at)
            sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &system);
    }
    if (file)
        fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/statm", served->machine.pid);
    file = fopen(path, "re");
    if (file && fscanf(file, "%*u %llu", &resident) != 1)
        resident = 0;
    if (file)
        fclose(file);
    unsigned long long tick = 1000000000u / (unsigned long long)sysconf(_SC_CLK_TCK);
    bytes_add(text, number, (size_t)snprintf(number, sizeof(number), "cpu-ns %llu", (user + system) * tick) + 1);
    resident *= (unsigned long long)sysconf(_SC_PAGESIZE);
    bytes_add(text, number, (size_t)snprintf(number, sizeof(number), "memory %llu", resident) + 1);
}

static void answer_stats(struct client *client) {
    bytes_add(&client->waiting, "vmtailor 1", 11);
    add_use(&client->waiting);
    if (served->orders->builtins && served->guest.open && served->guest.listening && !guest_ended(&served->guest)) {
        begin_session(client, NULL, "stats", ROLE_STATS);
    } else {
        send_frame(client, 'R', bytes_first(&client->waiting), bytes_left(&client->waiting));
        client->role = ROLE_ANSWERED;
    }
}

/* What the monitor's process uses, without asking the guest. */
static void answer_use(struct client *client) {
    bytes_add(&client->waiting, "vmtailor 1", 11);
    add_use(&client->waiting);
    send_frame(client, 'R', bytes_first(&client->waiting), bytes_left(&client->waiting));
    client->role = ROLE_ANSWERED;
}

static void stop(struct client *client, const struct request *request) {
    served->restarts = false;
    served->grace_ms = number(request, "grace-ms", served->grace_ms);
    relay_stop(served, (int)number(request, "signal", served->orders->stop_signal));
    send_frame(client, 'R', NULL, 0);
    client->role = ROLE_WAIT;
}

static void serve(struct client *client, const struct request *request) {
    const char *verb = request->verb;
    if (!strcmp(verb, "state")) {
        answer_state(client);
    } else if (!strcmp(verb, "stop")) {
        stop(client, request);
    } else if (!strcmp(verb, "kill")) {
        int signal = (int)number(request, "signal", 9);
        if (signal == 9) {
            served->restarts = false;
            served->killed = true;
        } else if (served->guest.open && !guest_ended(&served->guest)) {
            guest_signal(&served->guest, signal);
        } else { // between two runs
            refuse(client, "the container does not run");
            return;
        }
        send_frame(client, 'R', NULL, 0);
        client->role = ROLE_ANSWERED;
    } else if (!strcmp(verb, "wait")) {
        client->role = ROLE_WAIT;
    } else if (!strcmp(verb, "attach")) {
        client->role = ROLE_ATTACHED;
        client->input = number(request, "stdin", 0) == 1 && served->orders->interactive;
    } else if (!strcmp(verb, "exec")) {
        begin_session(client, request, NULL, ROLE_SESSION);
    } else if (!strcmp(verb, "archive") || !strcmp(verb, "extract") || !strcmp(verb, "processes") ||
               !strcmp(verb, "sample")) {
        begin_session(client, request, verb, ROLE_SESSION);
    } else if (!strcmp(verb, "use")) {
        answer_use(client);
    } else if (!strcmp(verb, "stats")) {
        answer_stats(client);
    } else {
        refuse(client, "this is not understood by the machine's supervisor");
    }
}

static void on_request(struct client *client, char *payload, size_t length) {
    struct request request = {.verb = payload + 3, .records = NULL};
    if (length < 5 || strncmp(payload, "do ", 3) || payload[length - 1]) {
        refuse(client, "no request");
        return;
    }
    size_t first = strlen(payload) + 1;
    request.records = payload + first;
    request.length = length - first;
    serve(client, &request);
}

static void on_input(struct client *client, char type, const uint8_t *payload, size_t length) {
    char text[32];
    snprintf(text, sizeof(text), "%.*s", (int)(length < 31 ? length : 31), length ? (const char *)payload : "");
    if (client->role == ROLE_SESSION && client->session) {
        static const char from[] = "isw", to[] = "jqv";
        const char *found = type ? strchr(from, type) : NULL;
        if (type == 'i')
            bytes_add(&client->waiting, payload, length);
        else if (type == 'e')
            client->input_ended = true;
        else if (found)
            send_session(client->session, to[found - from], payload, length);
        feed_session(client);
    } else if (client->role == ROLE_ATTACHED) {
        int rows, columns;
        if (type == 'i' && client->input)
            guest_input(&served->guest, payload, length);
        else if (type == 'e' && client->input)
            guest_input_end(&served->guest);
        else if (type == 's')
            guest_signal(&served->guest, atoi(text));
        else if (type == 'w' && sscanf(text, "%d %d", &rows, &columns) == 2)
            guest_window(&served->guest, rows, columns);
    }
}

static void on_frames(struct client *client) {
    struct bytes *heard = &client->heard;
    while (client->fd >= 0 && bytes_left(heard) >= HEAD) {
        const uint8_t *head = bytes_first(heard);
        size_t length = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
        if (length > MOST_PAYLOAD) {
            close_client(client);
            return;
        }
        if (bytes_left(heard) < HEAD + length)
            return;
        char type = (char)head[0];
        if (client->role == ROLE_NEW && type == 'Q')
            on_request(client, (char *)heard->data + heard->from + HEAD, length);
        else if (client->role == ROLE_NEW)
            refuse(client, "no request");
        else
            on_input(client, type, head + HEAD, length);
        bytes_drop(heard, HEAD + length);
    }
}

// --- connections

static _Noreturn void cannot_listen(const char *path) {
    fprintf(stderr, "vmtailor: the machine's control socket in %s cannot be made: %s\n", path, strerror(errno));
    exit(125);
}

// The folder is the user's alone; a path of a socket may be longer than its address has room for.
static void listen_in(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat what;
    if (mkdir(path, 0700) && errno != EEXIST)
        cannot_listen(path);
    int folder = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    errno = folder < 0 ? errno : EPERM;
    if (folder < 0 || fstat(folder, &what) || what.st_uid != geteuid() || what.st_mode & 077)
        cannot_listen(path);
    unlinkat(folder, "control", 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/control", folder);
    listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listening < 0 || bind(listening, (struct sockaddr *)&address, sizeof(address)) || listen(listening, 64))
        cannot_listen(path);
    close(folder);
}

void control_open(struct relay *relay) {
    served = relay;
    for (size_t i = 0; i < MOST_CLIENTS; i++)
        clients[i].fd = -1;
    if (!relay->orders->runtime)
        return;
    listen_in(relay->orders->runtime);
    state_place(&relay->state, relay->orders->runtime);
}

static void take_connection(void) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    bool ours = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
    for (size_t i = 0; ours && i < MOST_CLIENTS; i++)
        if (clients[i].fd < 0) {
            clients[i] = (struct client){.fd = fd, .out = {.fd = fd, .way = WAY_SOCKET}};
            return;
        }
    close(fd); // a stranger, or one too many
}

static bool reads(const struct client *client) {
    bool held = client->role == ROLE_ATTACHED && bytes_left(&served->guest.input) >= WINDOW;
    return !held && (client->role != ROLE_SESSION || bytes_left(&client->waiting) < WINDOW);
}

size_t control_polls(struct pollfd *polls) {
    size_t count = 0;
    polls[count++] = (struct pollfd){.fd = listening, .events = POLLIN};
    for (size_t i = 0; i < MOST_CLIENTS; i++) {
        struct client *client = &clients[i];
        short events = (short)((client->fd >= 0 && reads(client) ? POLLIN : 0) |
                               (client->fd >= 0 && bytes_left(&client->out.queue) > 0 ? POLLOUT : 0));
        polls[count++] = (struct pollfd){.fd = client->fd, .events = events};
    }
    return count;
}

static void hear_client(struct client *client) {
    static uint8_t data[65536];
    ssize_t length = recv(client->fd, data, sizeof(data), MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (length <= 0) {
        close_client(client);
        return;
    }
    bytes_add(&client->heard, data, (size_t)length);
    on_frames(client);
}

void control_ready(struct relay *relay, const struct pollfd *polls, size_t count) {
    (void)relay;
    for (size_t i = 1; i < count; i++) {
        struct client *client = &clients[i - 1];
        if (client->fd < 0 || client->fd != polls[i].fd || !polls[i].revents)
            continue;
        if (polls[i].revents & POLLOUT)
            outlet_write(&client->out);
        tell_taken(client);
        if (polls[i].revents & ~POLLOUT)
            hear_client(client);
    }
    if (polls[0].revents)
        take_connection();
    control_sweep();
}

void control_sweep(void) {
    for (size_t i = 0; i < MOST_CLIENTS; i++) {
        struct client *client = &clients[i];
        if (client->fd >= 0 && (client->out.failed || (client->ends && bytes_left(&client->out.queue) == 0)))
            close_client(client);
    }
}

void control_output(bool errors, const uint8_t *data, size_t length) {
    for (size_t i = 0; i < MOST_CLIENTS; i++)
        if (clients[i].fd >= 0 && clients[i].role == ROLE_ATTACHED)
            send_frame(&clients[i], errors ? 'E' : 'O', data, length);
}

bool control_attached(void) {
    for (size_t i = 0; i < MOST_CLIENTS; i++)
        if (clients[i].fd >= 0 && clients[i].role == ROLE_ATTACHED)
            return true;
    return false;
}

void control_words(const void *words, size_t length) {
    control_output(true, words, length);
}

bool control_full(void) {
    for (size_t i = 0; i < MOST_CLIENTS; i++)
        if (clients[i].fd >= 0 && clients[i].role == ROLE_ATTACHED && outlet_full(&clients[i].out))
            return true;
    return false;
}

void control_ended(int code, int signal, const char *why, bool final) {
    health.session = 0;
    health.failed = 0;
    health.next_ms = 0;
    health.was_good = false;
    for (size_t i = 0; i < MOST_CLIENTS; i++) {
        struct client *client = &clients[i];
        bool session = client->fd >= 0 && client->session;
        client->session = 0;
        if (session)
            send_exit(client, 137, 9, "");
        else if (client->fd >= 0 && (client->role == ROLE_ATTACHED || (client->role == ROLE_WAIT && final)))
            send_exit(client, code, signal, why);
    }
    control_sweep();
}

void control_close(const struct orders *orders) {
    struct pollfd polls[CONTROL_POLLS];
    char path[4096];
    if (listening < 0)
        return;
    snprintf(path, sizeof(path), "%s/control", orders->runtime);
    unlink(path);
    close_once(&listening);
    for (int64_t end = now_ms() + LAST_MS, now; (now = now_ms()) < end;) {
        bool left = false;
        size_t count = control_polls(polls);
        for (size_t i = 0; i < MOST_CLIENTS; i++)
            left = left || (clients[i].fd >= 0 && clients[i].ends);
        if (!left)
            break;
        if (poll(polls, count, (int)(end - now)) > 0)
            control_ready(served, polls, count);
    }
    rmdir(orders->runtime);
}

// --- health

static void set_health(const char *found) {
    if (!strcmp(served->state.health, found))
        return;
    served->state.health = found;
    state_save(&served->state);
}

static void end_health(int code) {
    const struct orders *orders = served->orders;
    health.session = 0;
    health.next_ms = now_ms() + orders->health_interval_ms;
    if (code == 0) {
        health.failed = 0;
        health.was_good = true;
        set_health("healthy");
    } else if (health.was_good || now_ms() > health.born_ms + orders->health_start_ms) {
        if (++health.failed >= orders->health_retries)
            set_health("unhealthy");
    }
}

void control_health(struct relay *relay) {
    const struct orders *orders = relay->orders;
    int64_t now = now_ms();
    if (!orders->health.count || !relay->guest.listening || guest_ended(&relay->guest))
        return;
    if (health.session && now > health.until_ms) {
        char text[8];
        guest_frame(&relay->guest, 'q', text, (size_t)snprintf(text, sizeof(text), "%c9", health.session));
        end_health(1);
    } else if (!health.session && health.next_ms == 0) {
        health.born_ms = now;
        health.next_ms = now + orders->health_interval_ms;
    } else if (!health.session && now >= health.next_ms) {
        struct bytes text = {0};
        for (size_t i = 0; i < orders->health.count; i++) {
            bytes_add(&text, "arg ", 4);
            bytes_add(&text, orders->health.items[i], strlen(orders->health.items[i]) + 1);
        }
        uint8_t session = free_session();
        if (session) {
            health.session = session;
            health.until_ms = now + orders->health_timeout_ms;
            start_session(session, NULL, (const char *)bytes_first(&text), bytes_left(&text));
        }
        bytes_free(&text);
    }
}
