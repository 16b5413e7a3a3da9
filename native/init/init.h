/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1 of our machines. main.c reads as the order of a boot; each other file is one part of it. */
#ifndef VT_INIT_H
#define VT_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "records.h"
#include "stamp.h"
#include "wire.h"

/* --- port.c: the serial line --- */

void port_open(void);
void port_key(const uint8_t key[WIRE_KEY]);
int port_fd(void);
void port_send(char type, const void *payload, size_t length);
void port_text(char type, const char *format, ...) __attribute__((format(printf, 2, 3)));
void port_mark(const char *name, struct stamp stamp);
/* A thing that is missing and was not demanded. `symbol`: what kernel configuration would bring it, or "". */
void port_note(const char *symbol, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A file, by name, in as many frames as it takes. */
void port_file(const char *name, const void *data, size_t length);
void port_drain(void);

/* The boot cannot go on: say why and which symbol would help ("" when none), power off. */
_Noreturn void fatal(const char *symbol, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- settings: what init was told --- */

extern struct settings told;

/* Read all of a file (at most `most` bytes) into fresh memory, NUL at its end; NULL and errno when it cannot. */
char *read_file(const char *path, size_t most, size_t *length);
void told_read(void);

/* --- root.c, devices.c, identity.c, net.c --- */

void root_scratch(void);
void root_writable(void);
void root_mounts(void);
/* The device number of the n-th virtio disk (0 is the root). */
dev_t disk_number(int n);
void devices_make(void);
void identity_set(void);
void net_up(void);
void tools_mount(void);

/* --- user.c --- */

#define MAX_GROUPS 64

struct identity {
    uid_t uid;
    gid_t gid;
    gid_t groups[MAX_GROUPS];
    size_t group_count;
    const char *home;
};

/* Resolve "user", "user:group", numbers or "". Returns NULL, or what is wrong. Reads /etc/passwd and /etc/group. */
const char *identity_find(const char *text, struct identity *identity);
/* The same over given file contents (NULL: no such file); for tests. */
const char *identity_parse(const char *text, char *passwd, char *group, struct identity *identity);

/* --- capabilities.c: what the container's root may do --- */

/* Is it less than everything? Not where the run is privileged, nor in a kernel without MULTIUSER. */
bool capabilities_limited(void);
/* PID 1, before anything of the container runs: all that it executes later is limited. */
void capabilities_limit(void);
/* The second half of a traced start, whose tracer is not limited. False and errno when it cannot be. */
bool capabilities_limit_traced(void);
/* In a child that becomes the container: without what programs of ours are given. False and errno likewise. */
bool capabilities_leave_ours(void);

/* --- child.c: what runs as the container --- */

struct stdio {
    int in, out, err;
    bool terminal; /* `in` is a terminal to be made the controlling one */
};

/* What a child says on its status pipe: an entry mark, or why it could not execute. */
struct child_status {
    char what; /* 'm' mark, 'e' error */
    int error;
    int exit_code;
    struct stamp stamp;
    char call[80];
    char symbol[24]; /* what the kernel lacks, or "" */
};

/* Prepare what all children share: identity, environment, working directory. */
void child_prepare(void);
uid_t child_uid(void);
/* Fork; the child becomes the container's `argv`. `status_fd` (if not NULL) is where child_status records come from.
 * With `mark`, it marks "entry" just before it executes. Traced when the run asks for it. */
pid_t child_start(struct list *argv, struct stdio stdio, bool mark, int *status_fd);
/* `init --exec FD STATUS MARK`: second half of a traced start. */
int child_exec_again(int argc, char **argv);
/* Start a program of ours outside the container (the client), with standard output on `out`. */
pid_t child_tool(char *const argv[], int out);
/* Is this process a tracer of ours? */
bool child_is_tracer(pid_t pid);

/* --- loop.c: poll, reap --- */

struct watch {
    int fd;
    short events;
    void (*ready)(struct watch *watch, short events);
};

void loop_start(void);
void loop_add(struct watch *watch, int fd, short events, void (*ready)(struct watch *watch, short events));
void loop_remove(struct watch *watch);
/* Wait for one of: something to read, a child's end, `deadline_ns` on the monotonic clock. Then handle it. */
void loop_step(uint64_t deadline_ns);
bool loop_has_children(void);

/* --- entry.c: the entry point and its standard streams --- */

void entry_start(void);
bool entry_ended(int *exit_code, int *by_signal, const char **why);
bool entry_exit(pid_t pid, int status);
void entry_signal(int number);
void entry_from_host(char type, const uint8_t *payload, size_t length);
/* Are there streams that may still bring output? */
bool entry_streams_open(void);

/* --- tracelog.c: what tracers write, copied to the trace disk --- */

void tracelog_open(void);
void tracelog_mark(const char *name);
void tracelog_close(void);

/* --- rest.c --- */

/* Does nothing run but this process? True, too, where the kernel does not tell. */
bool at_rest(void);

/* --- exercise.c --- */

void exercise_start(void);
/* Do what is due; returns when to be called again at the latest (ns). */
uint64_t exercise_advance(void);
bool exercise_exit(pid_t pid, int status);
void exercise_go(void);
/* The entry point ended. */
void exercise_entry_ended(int exit_code);

/* --- end.c --- */

_Noreturn void power_off(void);
void end_all_processes(void);

#endif
