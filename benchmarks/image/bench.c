// SPDX-License-Identifier: Apache-2.0
// What the benchmarks run within an instance: it says what it runs in, calls back, and does work of a known amount.
// Static, so that exactly these bytes run in every runtime. Each command prints one JSON object.
//
//   bench report [FILE]       what is seen from inside; with FILE, calls back first by creating it
//   bench witness PROGRAM...  reports, and becomes a program
//   bench hold [FILE]         says that it is there, as report does, and waits to be ended; once FILE.ask is there it
//                             reports into FILE.report, and creates FILE.told
//   bench serve PORT          answers HTTP requests with "bench", and those for /report with a report
//   bench null                does nothing
//   bench times N PROGRAM     starts a program so many times, one after the other, and says how long each took
//   bench stream BYTES TIMES  STREAM's four kernels over three arrays of so many bytes each
//   bench spin SECONDS        rounds of integer arithmetic in so many seconds
//   bench after FOLDER NAME PROGRAM...
//                             creates NAME in a folder, waits until `go` is there, and becomes a program
//   bench conduct FOLDER COUNT make | there | end | TEST SECONDS
//                             has so many instances of `unixbench obey` do a test at the same time
//   bench fork-bomb MOST SECONDS
//                             processes that begin processes, at most so many, for at most so long
#define _GNU_SOURCE
#include "common.h"
#include "report.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <float.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static volatile sig_atomic_t asked_to_end;

static void on_signal(int number) {
    (void)number;
    asked_to_end = 1;
}

static void heed_signals(void) {
    struct sigaction heed = {.sa_handler = on_signal};
    sigaction(SIGTERM, &heed, NULL);
    sigaction(SIGINT, &heed, NULL);
}

// A file by its name and an end.
static const char *beside(const char *name, const char *end) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s%s", name, end);
    return path;
}

// In a process of its own, so that our memory stays as it is: to a client, or into a file beside a name.
static void report_apart(int client, const char *name) {
    pid_t child = fork();
    if (child == 0) {
        if (name ? !freopen(beside(name, ".report"), "w", stdout) : dup2(client, STDOUT_FILENO) < 0)
            _exit(1);
        printf("%s", name ? "" : "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n");
        if (report(NULL) == 0 && fflush(stdout) == 0 && name)
            create(beside(name, ".told"));
        _exit(0);
    }
    if (child > 0)
        waitpid(child, NULL, 0);
}

static int hold(const char *call_back) {
    const struct timespec look = {0, 50000000};
    sigset_t ends;
    if (call_back && !create(call_back))
        return fail(call_back);
    heed_signals();
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    puts("{\"held\": true}");
    fflush(stdout);
    for (bool told = !call_back; sigtimedwait(&ends, NULL, told ? NULL : &look) < 0;)
        if (!told && access(beside(call_back, ".ask"), F_OK) == 0) {
            report_apart(-1, call_back);
            told = true;
        }
    return 0;
}

static int serve(const char *port) {
    static const char REPORT[] = "GET /report ";
    static const char ANSWER[] = "HTTP/1.0 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nbench\n";
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    char request[4096];
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0)
        return fail("socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener, (struct sockaddr *)&here, sizeof(here)) < 0 || listen(listener, 512) < 0)
        return fail("listen");
    heed_signals();
    puts("{\"serving\": true}");
    fflush(stdout);
    while (!asked_to_end) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        if (read(client, request, sizeof(request)) >= (ssize_t)sizeof(REPORT) &&
            !memcmp(request, REPORT, sizeof(REPORT) - 1))
            report_apart(client, NULL);
        else if (write(client, ANSWER, sizeof(ANSWER) - 1) < 0)
            fail("write");
        shutdown(client, SHUT_WR);
        close(client);
    }
    return 0;
}

// --- STREAM: the four kernels as its definition has them, the best of the repetitions but the first.
static double *a, *b, *c;
static size_t elements;

static void copy(void) {
    for (size_t i = 0; i < elements; i++)
        c[i] = a[i];
}

static void scale(void) {
    for (size_t i = 0; i < elements; i++)
        b[i] = 3.0 * c[i];
}

static void add(void) {
    for (size_t i = 0; i < elements; i++)
        c[i] = a[i] + b[i];
}

static void triad(void) {
    for (size_t i = 0; i < elements; i++)
        a[i] = b[i] + 3.0 * c[i];
}

static const struct {
    const char *name;
    void (*work)(void);
    int arrays;
} KERNELS[] = {{"copy", copy, 2}, {"scale", scale, 2}, {"add", add, 3}, {"triad", triad, 3}};

static int stream(size_t bytes, int times) {
    double best[4] = {DBL_MAX, DBL_MAX, DBL_MAX, DBL_MAX};
    elements = bytes / sizeof(double);
    a = malloc(bytes), b = malloc(bytes), c = malloc(bytes);
    if (!a || !b || !c)
        return fail("malloc");
    for (size_t i = 0; i < elements; i++)
        a[i] = 1, b[i] = 2, c[i] = 0;
    for (int round = 0; round < times; round++)
        for (int k = 0; k < 4; k++) {
            double before = now_s(), took;
            KERNELS[k].work();
            took = now_s() - before;
            if (round > 0 && took < best[k])
                best[k] = took;
        }
    // Each array follows from the ones before: what was computed is checked, and cannot be left out.
    double x = 1, y = 2, z = 0;
    for (int round = 0; round < times; round++)
        z = x, y = 3 * z, z = x + y, x = y + 3 * z;
    for (size_t i = 0; i < elements; i += elements / 7 + 1)
        if (a[i] != x || b[i] != y || c[i] != z) {
            fprintf(stderr, "bench: the arrays are wrong\n");
            return 1;
        }
    printf("{");
    for (int k = 0; k < 4; k++)
        printf("%s\"%s\": %.1f", k ? ", " : "", KERNELS[k].name, KERNELS[k].arrays * (double)bytes / best[k] / 1e6);
    puts("}");
    return 0;
}

static int spin(double seconds) {
    uint64_t rounds = 0;
    uint32_t value = 1;
    double before = now_s(), took;
    do {
        for (int i = 0; i < 100000; i++)
            value = value * 1664525u + 1013904223u;
        rounds++;
        __asm__ volatile("" : "+r"(value));
        took = now_s() - before;
    } while (took < seconds);
    printf("{\"rounds_per_s\": %.3f}\n", (double)rounds / took);
    return 0;
}

static int times(int rounds, char **program) {
    printf("{\"seconds\": [");
    for (int round = 0; round < rounds; round++) {
        int status;
        double before = now_s();
        pid_t child = vfork();
        if (child < 0)
            return fail("vfork");
        if (child == 0) {
            execv(program[0], program);
            _exit(127);
        }
        waitpid(child, &status, 0);
        if (status != 0)
            return 1;
        printf("%s%.9f", round ? ", " : "", now_s() - before);
    }
    puts("]}");
    return 0;
}

static int after(const char *folder, const char *name, char **program) {
    struct timespec pause = {0, 500000};
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (!create(path))
        return fail(path);
    snprintf(path, sizeof(path), "%s/go", folder);
    while (access(path, F_OK) < 0)
        nanosleep(&pause, NULL);
    execvp(program[0], program);
    return fail(program[0]);
}

// --- Instances that obey: each has a pipe by which it is told a test, `NUMBER.do`; by one of all, `done`, each says a
// letter when it is prepared, and one when it is done. Until all are prepared we hold the pipe `start`, which they
// read.
static char path_of[4096];

static int at(const char *folder, const char *name, int how) {
    snprintf(path_of, sizeof(path_of), "%s/%s", folder, name);
    return open(path_of, how | O_CLOEXEC, 0600);
}

static int make_pipe(const char *folder, const char *name) {
    snprintf(path_of, sizeof(path_of), "%s/%s", folder, name);
    return mkfifo(path_of, 0600);
}

static int say(const char *folder, int instance, const char *words) {
    char name[32];
    snprintf(name, sizeof(name), "%d.do", instance);
    int file = at(folder, name, O_WRONLY | O_NONBLOCK); // refused where nobody obeys
    if (file < 0 || write(file, words, strlen(words)) < 0)
        return fail(path_of);
    return close(file);
}

// So many letters, all of which have to be this one.
static int hear(int done, int count, char wanted) {
    for (char letter = 0; count > 0; count--)
        if (read(done, &letter, 1) != 1 || letter != wanted) {
            fprintf(stderr, "bench: an instance said '%c'\n", letter);
            return 1;
        }
    return 0;
}

static int make_pipes(const char *folder, int count) {
    char name[32];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "%d.do", i);
        if (make_pipe(folder, name) < 0)
            return fail(path_of);
    }
    return make_pipe(folder, "done") < 0 ? fail(path_of) : 0;
}

static int play(const char *folder, int count, const char *test, const char *seconds) {
    char words[128], line[256];
    snprintf(words, sizeof(words), "%.60s %.30s\n", test, seconds);
    if (make_pipe(folder, "start") < 0)
        return fail(path_of);
    int start = at(folder, "start", O_RDWR), done = at(folder, "done", O_RDWR);
    if (start < 0 || done < 0)
        return fail(path_of);
    for (int i = 0; i < count; i++)
        if (say(folder, i, words) != 0)
            return 1;
    if (hear(done, count, 'p') != 0)
        return 1;
    double began = now_s();
    close(start);
    int failed = hear(done, count, 'y');
    int to = at(folder, "conducted", O_WRONLY | O_CREAT | O_APPEND);
    int length = snprintf(line, sizeof(line), "{\"test\": \"%.60s\", \"began_s\": %.9f, \"ended_s\": %.9f}\n", test,
                          began, now_s());
    if (to < 0 || write(to, line, (size_t)length) != length)
        return fail(path_of);
    snprintf(path_of, sizeof(path_of), "%s/start", folder);
    return failed || unlink(path_of) < 0;
}

static int conduct(const char *folder, int count, const char *what, const char *seconds) {
    if (!strcmp(what, "make"))
        return make_pipes(folder, count);
    if (!strcmp(what, "there")) {
        int done = at(folder, "done", O_RDWR);
        return done < 0 ? fail(path_of) : hear(done, count, 'p');
    }
    if (!strcmp(what, "end")) {
        int failed = 0;
        for (int i = 0; i < count; i++)
            failed |= say(folder, i, "end 0\n");
        return failed;
    }
    return seconds ? play(folder, count, what, seconds) : 2;
}

// Each process has the same deadline, and dies of it; what was begun is counted in memory that all of them share.
static int fork_bomb(int most, unsigned seconds) {
    double until = now_s() + seconds;
    int *begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (begun == MAP_FAILED)
        return fail("mmap");
    *begun = 1;
    signal(SIGCHLD, SIG_IGN);
    alarm(seconds);
    while (now_s() < until) {
        if (__atomic_add_fetch(begun, 1, __ATOMIC_RELAXED) > most) {
            __atomic_sub_fetch(begun, 1, __ATOMIC_RELAXED);
            sched_yield();
            continue;
        }
        pid_t child = fork();
        if (child == 0)
            alarm((unsigned)(until > now_s() ? until - now_s() : 0) + 1);
        else if (child < 0)
            __atomic_sub_fetch(begun, 1, __ATOMIC_RELAXED);
    }
    return 0;
}

int main(int count, char **words) {
    const char *command = count > 1 ? words[1] : "";
    if (!strcmp(command, "report"))
        return report(count > 2 ? words[2] : NULL);
    if (!strcmp(command, "witness") && count > 2)
        return witness(words + 2);
    if (!strcmp(command, "hold"))
        return hold(count > 2 ? words[2] : NULL);
    if (!strcmp(command, "serve") && count == 3)
        return serve(words[2]);
    if (!strcmp(command, "null"))
        return 0;
    if (!strcmp(command, "times") && count > 3)
        return times(atoi(words[2]), words + 3);
    if (!strcmp(command, "stream") && count == 4)
        return stream(strtoull(words[2], NULL, 10), atoi(words[3]));
    if (!strcmp(command, "spin") && count == 3)
        return spin(atof(words[2]));
    if (!strcmp(command, "after") && count > 4)
        return after(words[2], words[3], words + 4);
    if (!strcmp(command, "conduct") && count > 4 && atoi(words[3]) > 0)
        return conduct(words[2], atoi(words[3]), words[4], words[5]);
    if (!strcmp(command, "fork-bomb") && count == 4)
        return fork_bomb(atoi(words[2]), (unsigned)atoi(words[3]));
    fputs("usage: bench report [FILE] | witness PROGRAM... | hold [FILE] | serve PORT | null | times N PROGRAM\n"
          "       bench stream BYTES TIMES | spin SECONDS | after FOLDER NAME PROGRAM...\n"
          "       bench conduct FOLDER COUNT WHAT | fork-bomb MOST SECONDS\n",
          stderr);
    return 2;
}
