// SPDX-License-Identifier: Apache-2.0
// What the parts of unixbench share.
#ifndef UNIXBENCH_H
#define UNIXBENCH_H
#include <signal.h>

// How much was done, and in how many seconds of wall clock.
struct outcome {
    double count, seconds;
};

extern volatile sig_atomic_t over; // the time is over
extern double most;                // units of work to do at most: infinite where the time decides
extern const char *own_path;       // where this program lies, for those that start it again

double now_s(void);
void start_timer(double seconds);
_Noreturn void test_failed(const char *what);

struct outcome dhrystone(double seconds);
struct outcome whetstone(double seconds);
struct outcome copy_small(double seconds);
struct outcome copy_tiny(double seconds);
struct outcome copy_large(double seconds);
struct outcome pipe_throughput(double seconds);
struct outcome context_switches(double seconds);
struct outcome process_creation(double seconds);
struct outcome system_calls(double seconds);
struct outcome scripts_one(double seconds);
struct outcome scripts_eight(double seconds);
#endif
