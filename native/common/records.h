/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What init is told: records "key value", each ended by a NUL, in /.vmtailor/config (from the image) and on the run
 * volume (for this run). Parsed in place: the strings point into the text.
 */
#ifndef VT_RECORDS_H
#define VT_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_STEPS 256

enum step_kind { STEP_NONE, STEP_HTTP, STEP_TCP, STEP_COMMAND, STEP_EXIT, STEP_LOAD, STEP_COMMANDS };

/* A list of strings, NULL at its end, grown as needed. */
struct list {
    char **items;
    size_t count;
};

struct step {
    enum step_kind kind;
    int port;
    const char *method, *path;
    struct list argv; /* of a command; the words of a load (load-client/plan.h) */
    int repeat;
    int timeout_ms; /* of one request or command */
    /* What is right: -1 and NULL ask for nothing. */
    int status, exit_code;
    const char *sha256, *contains;
};

/* What a run has otherwise than engines have it when they are asked for nothing. Texts as they were told. */
struct surroundings {
    bool read_only;         /* the root */
    bool no_new_privileges; /* programs that are executed get none by their files */
    const char *shm;        /* bytes of /dev/shm, at most */
    const char *domain;     /* NIS domain name */
    const char *oom;        /* oom_score_adj */
    const char *layer;      /* a disk for what is written: its number, the options of its mount */
    const char *rights;     /* of the container's root: capabilities, in hex */
    struct list hosts;      /* lines of /etc/hosts */
    struct list resolver;   /* lines of /etc/resolv.conf */
    struct list groups;     /* further ones of the user, names or numbers */
    struct list limits;     /* "RESOURCE SOFT HARD" */
    struct list tmpfs;      /* "FLAGS OPTIONS PATH"; OPTIONS "-" for none */
    struct list sysctls;    /* "PATH VALUE", PATH below /proc/sys */
};

struct settings {
    struct list argv, env, volumes, trace;
    struct list mounts; /* init/container/mounts.c says what stands in them */
    struct list quiet;  /* errors: where there are any, refused calls are told, but for those with one of these */
    const char *cwd, *user, *hostname, *net, *net6;
    int stop_signal;
    int stop_timeout_ms, grace_ms;
    int sample_ms; /* between two samples of the machine's figures; 0: none are taken */
    bool stdin_relay, terminal;
    int rows, cols;
    bool privileged;      /* the container's root may do everything */
    bool pid_one;         /* the entry point is the first of its processes, where the kernel can do that */
    bool virtio_line;     /* the host is to be talked to on a virtio port */
    const char *key_text; /* where the key stands in its text, or NULL: there is none */
    uint8_t key[16];
    bool exercise; /* there is one: `ready` and `steps` count */
    bool hold;     /* after the load, wait for the host's go */
    int ready_timeout_ms;
    struct step ready;
    struct step *steps;
    size_t step_count;
    struct surroundings *surroundings; /* NULL where nothing is asked for */
};

void settings_default(struct settings *settings);

/* Add the records of one text (its length, without any padding) to `settings`. Later ones win; the first `arg` or
 * `trace` of a text drops those of an earlier text. Returns NULL, or what is wrong. */
const char *settings_read(struct settings *settings, char *text, size_t length);

/* Append; false when there is no memory. */
bool list_add(struct list *list, char *item);

/* The value of NAME=… in a list of such, or NULL. */
char *list_get(const struct list *list, const char *name);

/* Put NAME=value, in place of one of the same name. */
bool list_put(struct list *list, char *assignment);

#endif
