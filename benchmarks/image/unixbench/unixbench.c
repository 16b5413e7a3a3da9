// SPDX-License-Identifier: Apache-2.0
// The twelve tests of the UnixBench index, by its definitions, written anew: figures of this set are labelled as ours.
// Every test is timed by wall clock. Copies begin together, each in a folder of its own.
//
//   unixbench about                           compiler and flags
//   unixbench TEST SECONDS COPIES [FOLDER NAME]    with FOLDER: creates NAME in it, and begins when `go` is there
//   unixbench units TEST COUNT                does so many units of a test's work, and times nothing
//   unixbench obey FOLDER NAME                does one test after the other, as `bench conduct` says in FOLDER
//   unixbench real COPIES FOLDER NAME TREE PROGRAM...
//                                             the same with copies of a program of the published set, built in TREE
//
// Prints one JSON object: the score is the sum over the copies; of a published program, what each copy printed. Times
// are of the wall clock; `cpu_s` is the processor's time that the copies and their children used.
#define _GNU_SOURCE
#include "unixbench.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef FLAGS
#define FLAGS "not recorded"
#endif
#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif
#define SCRATCH "/data"
enum { MOST_COPIES = 1024 };

volatile sig_atomic_t over;
double most = INFINITY;
const char *own_path;

double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

// Processor time of this process, and of its children that have been waited for.
static double used_s(void) {
    struct timespec own;
    struct rusage children;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return (double)own.tv_sec + (double)own.tv_nsec / 1e9 +
           (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) / 1e6;
}

// What a copy says of itself.
struct told {
    struct outcome found;
    double began_s, cpu_s;
};

_Noreturn void test_failed(const char *what) {
    fprintf(stderr, "unixbench: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static void on_alarm(int number) {
    (void)number;
    over = 1;
}

// Sets `over` when the time is. System calls that wait then return, and are not begun again.
void start_timer(double seconds) {
    struct sigaction heed = {.sa_handler = on_alarm};
    struct itimerval timer = {.it_value = {(time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)}};
    sigaction(SIGALRM, &heed, NULL);
    over = 0;
    if (setitimer(ITIMER_REAL, &timer, NULL) < 0)
        test_failed("setitimer");
}

// --- execl: a program that starts itself again, until the time is over. It carries its count in its words.
static _Noreturn void execute_again(int out, double count, double started, double seconds) {
    char fd[16], done[32], since[32], wanted[32], units[32];
    snprintf(fd, sizeof(fd), "%d", out);
    snprintf(done, sizeof(done), "%.0f", count);
    snprintf(since, sizeof(since), "%.9f", started);
    snprintf(wanted, sizeof(wanted), "%.6f", seconds);
    snprintf(units, sizeof(units), "%.0f", most);
    execl(own_path, own_path, "execl-again", fd, done, since, wanted, units, (char *)NULL);
    test_failed("execl");
}

static int executed(char **words) {
    int out = atoi(words[2]);
    double count = atof(words[3]) + 1, started = atof(words[4]), seconds = atof(words[5]);
    struct told told = {{count, now_s() - started}, started, used_s()};
    most = atof(words[6]);
    if (told.found.seconds < seconds && count < most)
        execute_again(out, count, started, seconds);
    if (out == STDOUT_FILENO) // nobody measures the time
        return printf("{\"test\": \"execl\", \"units\": %.0f}\n", count) < 0;
    return write(out, &told, sizeof(told)) == sizeof(told) ? 0 : 1;
}

// Names and units as in published tables; `scale` is the part of a minute, or of a second, that the unit has.
static const struct test {
    const char *name, *unit;
    double scale;
    struct outcome (*run)(double seconds);
} TESTS[] = {
    {"dhry2reg", "lps", 1, dhrystone},
    {"whetstone-double", "MWIPS", 1, whetstone},
    {"execl", "lps", 1, NULL},
    {"fstime", "KBps", 1, copy_small},
    {"fsbuffer", "KBps", 1, copy_tiny},
    {"fsdisk", "KBps", 1, copy_large},
    {"pipe", "lps", 1, pipe_throughput},
    {"context1", "lps", 1, context_switches},
    {"spawn", "lps", 1, process_creation},
    {"syscall", "lps", 1, system_calls},
    {"shell1", "lpm", 60, scripts_one},
    {"shell8", "lpm", 60, scripts_eight},
};

static void await_go(const char *folder, const char *name) {
    char path[4096];
    struct timespec pause = {0, 500000};
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (file < 0)
        test_failed(path);
    close(file);
    snprintf(path, sizeof(path), "%s/go", folder);
    while (access(path, F_OK) < 0)
        nanosleep(&pause, NULL);
}

// --- Several instances, told by one conductor outside of them (`bench conduct`) what to do next. Its words come
// through a pipe of each instance's own, ours go to it through a common one: a letter when all is prepared, and one at
// the end.
static int done = -1;

static void tell(char letter) {
    if (write(done, &letter, 1) != 1)
        test_failed("done");
}

// The conductor holds the other end until everybody is prepared: so all are woken at once.
static void await_round(const char *start) {
    char byte;
    int file = open(start, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        test_failed(start);
    tell('p');
    if (read(file, &byte, 1) < 0)
        test_failed(start);
    close(file);
}

// Where copy `number` works.
static const char *folder_of(int number) {
    static char folder[256];
    snprintf(folder, sizeof(folder), SCRATCH "/copy-%d-%d", (int)getpid(), number);
    return folder;
}

// A copy in a folder of its own, which begins when the others do: when the pipe is closed.
static pid_t begin_copy(int number, const int start[2], const int *close_too) {
    const char *folder = folder_of(number);
    char byte;
    pid_t child = fork();
    if (child < 0)
        test_failed("fork");
    if (child > 0)
        return child;
    close(start[1]);
    if (close_too)
        close(*close_too);
    if (mkdir(folder, 0700) < 0 || chdir(folder) < 0)
        test_failed(folder);
    if (read(start[0], &byte, 1) < 0)
        test_failed("start");
    close(start[0]);
    return 0;
}

static void common_start(const int start[2], char **place) {
    if (place && place[1])
        await_go(place[0], place[1]);
    else if (place)
        await_round(place[0]);
    close(start[0]);
    close(start[1]);
}

static _Noreturn void be_copy(const struct test *test, double seconds, int out) {
    if (!test->run)
        execute_again(out, 0, now_s(), seconds);
    struct told told = {.began_s = now_s()};
    double before = used_s();
    told.found = test->run(seconds);
    told.cpu_s = used_s() - before;
    _exit(write(out, &told, sizeof(told)) == sizeof(told) ? 0 : 1);
}

// `place`: where to wait for the common start: a folder and our name in it; or the name of what a conductor opens
// alone.
static int measure(const struct test *test, double seconds, int copies, char **place, FILE *to) {
    static double scores[MOST_COPIES];
    int start[2], out[2], failed = 0;
    double sum = 0, units = 0, cpu_s = 0, began_s = INFINITY, ended_s = 0;
    if (pipe(start) < 0 || pipe(out) < 0)
        test_failed("pipe");
    for (int i = 0; i < copies; i++)
        if (begin_copy(i, start, &out[0]) == 0)
            be_copy(test, seconds, out[1]);
    close(out[1]);
    common_start(start, place);
    for (int i = 0; i < copies; i++) {
        struct told one;
        if (read(out[0], &one, sizeof(one)) != sizeof(one) || one.found.seconds <= 0) {
            failed++;
            continue;
        }
        scores[i] = one.found.count * test->scale / one.found.seconds;
        sum += scores[i];
        units += one.found.count;
        cpu_s += one.cpu_s;
        began_s = fmin(began_s, one.began_s);
        ended_s = fmax(ended_s, one.began_s + one.found.seconds);
    }
    close(out[0]);
    for (int i = 0, status; i < copies; i++)
        failed += wait(&status) < 0 || status != 0;
    if (failed) {
        fprintf(stderr, "unixbench: a copy of %s failed\n", test->name);
        return 1;
    }
    fprintf(to, "{\"test\": \"%s\", \"unit\": \"%s\", \"copies\": %d, \"score\": %.6f, \"units\": %.6f, ", test->name,
            test->unit, copies, sum, units);
    fprintf(to, "\"began_s\": %.9f, \"ended_s\": %.9f, \"cpu_s\": %.9f, \"of_copies\": [", began_s, ended_s, cpu_s);
    for (int i = 0; i < copies; i++)
        fprintf(to, "%s%.6f", i ? ", " : "", scores[i]);
    fputs("]}\n", to);
    return fflush(to);
}

static const struct test *test_named(const char *name) {
    for (size_t i = 0; i < sizeof(TESTS) / sizeof(TESTS[0]); i++)
        if (!strcmp(name, TESTS[i].name))
            return &TESTS[i];
    return NULL;
}

static int opened(const char *folder, const char *name, const char *ending, int how) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s%s", folder, name, ending);
    int file = open(path, how | O_CLOEXEC, 0600);
    if (file < 0)
        test_failed(path);
    return file;
}

// What a copy leaves in its folder: the files of the copying tests.
static void tidy(void) {
    const char *folder = folder_of(0);
    if (chdir(folder) < 0 || (unlink("from") < 0 && errno != ENOENT) || (unlink("to") < 0 && errno != ENOENT) ||
        chdir("/") < 0 || rmdir(folder) < 0)
        test_failed(folder);
}

static int obey(const char *folder, const char *name) {
    char test[64], start[4096];
    double seconds;
    // Both directions, so that no end is ever the last one.
    FILE *words = fdopen(opened(folder, name, ".do", O_RDWR), "r");
    FILE *to = fdopen(opened(folder, name, ".said", O_WRONLY | O_CREAT | O_APPEND), "a");
    done = opened(folder, "done", "", O_RDWR);
    if (!words || !to)
        test_failed("fdopen");
    snprintf(start, sizeof(start), "%s/start", folder);
    tell('p');
    while (fscanf(words, "%63s %lf", test, &seconds) == 2) {
        const struct test *wanted = test_named(test);
        if (!wanted)
            return 0;
        tell(measure(wanted, seconds, 1, (char *[]){start, NULL}, to) == 0 ? 'y' : 'n');
        tidy();
    }
    return 0;
}

// What a kernel still does when its first program starts would run beside the work: it is let finish, which costs
// nothing on the instruction clock. A day: a timer that does not come.
static int units(const struct test *test, double count) {
    struct outcome found = {0};
    struct timespec rest = {5, 0};
    nanosleep(&rest, NULL);
    most = count;
    if (chdir(SCRATCH) < 0)
        test_failed(SCRATCH);
    if (!test->run)
        execute_again(STDOUT_FILENO, 0, now_s(), 86400);
    found = test->run(86400);
    printf("{\"test\": \"%s\", \"units\": %.0f}\n", test->name, found.count);
    return 0;
}

static void put_text(const char *path) {
    int letter;
    FILE *file = fopen(path, "r");
    putchar('"');
    while (file && (letter = getc(file)) != EOF)
        printf(letter == '"' || letter == '\\' || letter < 32 || letter > 126 ? "\\u%04x" : "%c", letter);
    putchar('"');
    if (file)
        fclose(file);
}

// The published set's programs look for each other, and for their files, where these variables say.
static _Noreturn void be_published(const char *tree, char **program) {
    char place[4096], own[4096];
    snprintf(place, sizeof(place), "cp -r '%s/testdir/.' .", tree);
    if (!getcwd(own, sizeof(own)) || system(place) != 0)
        test_failed(place);
    snprintf(place, sizeof(place), "%s/pgms", tree);
    setenv("UB_BINDIR", place, 1);
    setenv("UB_TMPDIR", own, 1);
    setenv("UB_TESTDIR", own, 1);
    setenv("UB_RESULTDIR", own, 1);
    int said = open("said", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (said < 0 || dup2(said, 1) < 0 || dup2(said, 2) < 0)
        test_failed("said");
    execv(program[0], program);
    test_failed(program[0]);
}

static int published(int copies, char **place, const char *tree, char **program) {
    static double seconds[MOST_COPIES];
    static pid_t children[MOST_COPIES];
    int start[2], failed = 0;
    if (pipe(start) < 0)
        test_failed("pipe");
    for (int i = 0; i < copies; i++)
        if ((children[i] = begin_copy(i, start, NULL)) == 0)
            be_published(tree, program);
    common_start(start, place);
    double before = now_s();
    for (int ended = 0; ended < copies; ended++) {
        int status;
        pid_t child = wait(&status);
        failed += child < 0 || status != 0;
        for (int i = 0; i < copies; i++)
            if (children[i] == child)
                seconds[i] = now_s() - before;
    }
    printf("{\"failed\": %d, \"of_copies\": [", failed);
    for (int i = 0; i < copies; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/said", folder_of(i));
        printf("%s{\"seconds\": %.6f, \"said\": ", i ? ", " : "", seconds[i]);
        put_text(path);
        putchar('}');
    }
    puts("]}");
    return 0;
}

int main(int count, char **words) {
    own_path = words[0];
    if (count == 7 && !strcmp(words[1], "execl-again"))
        return executed(words);
    if (count == 2 && !strcmp(words[1], "about")) {
        printf("{\"set\": \"ours\", \"compiler\": \"%s\", \"flags\": \"%s\"}\n", COMPILER, FLAGS);
        return 0;
    }
    if (count == 4 && !strcmp(words[1], "obey"))
        return obey(words[2], words[3]);
    if (count == 4 && !strcmp(words[1], "units") && atof(words[3]) > 0) {
        const struct test *test = test_named(words[2]);
        if (test)
            return units(test, atof(words[3]));
    } else if (count > 6 && !strcmp(words[1], "real")) {
        int copies = atoi(words[2]);
        if (copies > 0 && copies <= MOST_COPIES)
            return published(copies, words + 3, words[5], words + 6);
    } else if (count == 4 || count == 6) {
        double seconds = atof(words[2]);
        int copies = atoi(words[3]);
        const struct test *test = test_named(words[1]);
        if (test && seconds > 0 && copies > 0 && copies <= MOST_COPIES)
            return measure(test, seconds, copies, count == 6 ? words + 4 : NULL, stdout);
    }
    fprintf(stderr, "usage: unixbench about | unixbench units TEST COUNT | unixbench TEST SECONDS COPIES [FOLDER NAME] "
                    "| unixbench obey FOLDER NAME | unixbench real COPIES "
                    "FOLDER NAME TREE PROGRAM...\n");
    return 2;
}
