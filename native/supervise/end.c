// SPDX-License-Identifier: Apache-2.0
#include "supervise/end.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/caught.h"
#include "supervise/control.h"

#define KILLED (128 + SIGKILL)
#define FAILED 125 // of container engines: the run failed, and not the container

static const char *const names[] = {"", "closed", "farewell", "halted", "killed", "not started"};

// Not a reader that has gone.
static bool is_failure(int error) {
    return error && error != EPIPE && error != EIO && error != ENXIO;
}

static bool tells(const struct bytes *bytes, const char *word) {
    return bytes_left(bytes) > 0 && memmem(bytes_first(bytes), bytes_left(bytes), word, strlen(word));
}

int end_status(const struct relay *relay) {
    const struct guest *guest = &relay->guest;
    bool unwritten = is_failure(relay->out.failed) || is_failure(relay->err.failed);
    if (relay->orders->explain_always)
        return -1;
    if (!guest->exited)
        return relay->finish == FINISH_KILLED ? KILLED : -1;
    bool worded = (guest->reason && *guest->reason) || (guest->status && tells(&guest->kernel_log, "Out of memory"));
    return worded || (!guest->status && unwritten) ? -1 : guest->status;
}

static void add(int file, const char *key, const void *value, size_t length) {
    char head[32];
    struct bytes text = {0};
    bytes_add(&text, head, (size_t)snprintf(head, sizeof(head), "%s ", key));
    bytes_add(&text, value, length);
    for (size_t i = 0; i < bytes_left(&text); i++) // a record ends with the NUL
        if (!text.data[text.from + i])
            text.data[text.from + i] = ' ';
    bytes_add(&text, "", 1);
    if (write(file, bytes_first(&text), bytes_left(&text)) < 0)
        exit(FAILED);
    bytes_free(&text);
}

static void add_text(int file, const char *key, const char *value) {
    if (value && *value)
        add(file, key, value, strlen(value));
}

static void add_bytes(int file, const char *key, const struct bytes *bytes) {
    if (bytes_left(bytes) > 0)
        add(file, key, bytes_first(bytes), bytes_left(bytes));
}

static void add_number(int file, const char *key, int64_t value) {
    char text[24];
    add(file, key, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)value));
}

static int make_record(const struct relay *relay) {
    const struct guest *guest = &relay->guest;
    const struct machine *machine = &relay->machine;
    int file = memfd_create("vmtailor-end", 0);
    if (file < 0 || write(file, "vmtailor 1", 11) != 11)
        exit(FAILED);
    add_text(file, "finish", names[relay->finish]);
    add_number(file, "elapsed-ms", relay->finished_ms - machine->started_ms);
    add_number(file, "heard", guest->heard);
    add_number(file, "listening", guest->listening);
    if (guest->exited) {
        add_number(file, "exit", guest->status);
        add_number(file, "signal", guest->signal);
        add_text(file, "reason", guest->reason);
    }
    if (guest->given_up) {
        add_text(file, "fatal-symbol", guest->fatal_symbol);
        add(file, "fatal", guest->fatal ? guest->fatal : "", guest->fatal ? strlen(guest->fatal) : 0);
    }
    for (size_t i = 0; i < guest->notes.count; i++)
        add_text(file, "note", guest->notes.items[i]);
    add_text(file, "farewell", guest->farewell);
    add_bytes(file, "console", &guest->kernel_said);
    add_bytes(file, "kernel-log", &guest->kernel_log);
    add_bytes(file, "monitor-said", &machine->said);
    if (relay->monitor_ended)
        add_number(file, "monitor-status", machine->status);
    if (is_failure(relay->out.failed))
        add_number(file, "failed-stdout", relay->out.failed);
    if (is_failure(relay->err.failed))
        add_number(file, "failed-stderr", relay->err.failed);
    lseek(file, 0, SEEK_SET);
    return file;
}

static _Noreturn void become_explainer(const struct relay *relay) {
    char **argv = relay->orders->explain.items;
    if (relay->orders->told)
        fcntl(relay->orders->told, F_SETFD, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGURG, SIG_DFL);
    int file = make_record(relay);
    if (file != END_RECORD) {
        dup2(file, END_RECORD);
        close(file);
    }
    if (argv)
        execv(argv[0], argv);
    fprintf(stderr, "vmtailor: the machine has ended: %s\n", names[relay->finish]);
    exit(FAILED);
}

_Noreturn void end_explain(const struct relay *relay) {
    caught_end(relay->signals);
    become_explainer(relay);
}

int end_explained(const struct relay *relay, char *words, size_t size) {
    int said[2], status;
    char data[4096];
    ssize_t length;
    size_t kept = 0;
    words[0] = '\0';
    if (pipe2(said, O_CLOEXEC))
        return FAILED;
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(said[1], 2);
        become_explainer(relay);
    }
    close(said[1]);
    while (pid > 0 && (length = read(said[0], data, sizeof(data))) != 0) {
        if (length < 0 && errno != EINTR)
            break;
        for (ssize_t i = 0; i < length; i++)
            if (kept + 1 < size)
                words[kept++] = data[i] && data[i] != '\n' ? data[i] : ' ';
        if (length <= 0)
            continue;
        if (!relay->orders->awaits || relay->alone) // the client has our standard error still
            control_words(data, (size_t)length);
        if (write(2, data, (size_t)length) < 0)
            continue; // nobody reads it
    }
    words[kept] = '\0';
    close(said[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return FAILED;
    return WEXITSTATUS(status);
}
