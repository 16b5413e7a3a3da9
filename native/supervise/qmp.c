// SPDX-License-Identifier: Apache-2.0
#include "supervise/qmp.h"

#include <errno.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MOST_ANSWER (4u << 20)

static const char agree[] = "{\"execute\":\"qmp_capabilities\"}\n";
static const char ask[] = "{\"execute\":\"human-monitor-command\",\"arguments\":{\"command-line\":"
                          "\"info registers -a\"}}\n";

void qmp_start(struct qmp *qmp, int fd) {
    bytes_free(&qmp->heard);
    *qmp = (struct qmp){.fd = fd, .state = fd < 0 ? QMP_GONE : QMP_GREETING};
}

static void say(struct qmp *qmp, const char *words, enum qmp_state next) {
    size_t length = strlen(words);
    qmp->state = send(qmp->fd, words, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length ? next : QMP_GONE;
}

void qmp_ask(struct qmp *qmp) {
    if (qmp->state == QMP_GONE)
        return;
    qmp->wanted = true;
    if (qmp->state == QMP_IDLE)
        say(qmp, ask, QMP_ASKED);
}

// Does each line that tells of a CPU say that it has halted? In JSON a line ends with the letters \r\n.
static bool all_halted(char *answer, const char *cpu, const char *halted) {
    regex_t names, stands;
    size_t named = 0, stood = 0;
    if (!cpu || !halted || regcomp(&names, cpu, REG_EXTENDED | REG_NOSUB))
        return false;
    if (regcomp(&stands, halted, REG_EXTENDED | REG_NOSUB)) {
        regfree(&names);
        return false;
    }
    for (char *line = answer; line;) {
        char *end = strstr(line, "\\n");
        if (end)
            *end = '\0';
        if (!regexec(&names, line, 0, NULL, 0)) {
            named++;
            stood += !regexec(&stands, line, 0, NULL, 0);
        }
        line = end ? end + 2 : NULL;
    }
    regfree(&names);
    regfree(&stands);
    return named > 0 && stood == named;
}

static bool on_line(struct qmp *qmp, char *line, const char *cpu, const char *halted) {
    bool answers = !strncmp(line, "{\"return\"", 9), refuses = !strncmp(line, "{\"error\"", 8);
    if (qmp->state == QMP_GREETING && !strncmp(line, "{\"QMP\"", 6)) {
        say(qmp, agree, QMP_AGREEING);
    } else if (qmp->state == QMP_AGREEING && answers) {
        qmp->state = QMP_IDLE;
        if (qmp->wanted)
            say(qmp, ask, QMP_ASKED);
    } else if (qmp->state == QMP_ASKED && (answers || refuses)) {
        qmp->state = QMP_IDLE;
        qmp->wanted = false;
        return answers && all_halted(line, cpu, halted);
    }
    return false;
}

bool qmp_hear(struct qmp *qmp, const char *cpu, const char *halted) {
    char data[16384];
    bool all = false;
    ssize_t length = recv(qmp->fd, data, sizeof(data), MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (length <= 0 || bytes_left(&qmp->heard) > MOST_ANSWER || !bytes_add(&qmp->heard, data, (size_t)length)) {
        qmp->state = QMP_GONE;
        return false;
    }
    const uint8_t *end;
    while ((end = memchr(bytes_first(&qmp->heard), '\n', bytes_left(&qmp->heard)))) {
        size_t size = (size_t)(end - bytes_first(&qmp->heard)) + 1;
        char *line = malloc(size);
        if (line) {
            memcpy(line, bytes_first(&qmp->heard), size);
            line[size - 1] = '\0';
            all = on_line(qmp, line, cpu, halted) || all;
        }
        free(line);
        bytes_drop(&qmp->heard, size);
        if (bytes_left(&qmp->heard) == 0)
            break;
    }
    return all;
}
