// SPDX-License-Identifier: Apache-2.0
// LINPACK as published tables have it: one system of N equations solved by LAPACK's dgesv (here OpenBLAS's), counted as
// 2/3 N³ + 2 N² operations, and the residual checked.
//
//   linpack N THREADS
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

extern void dgesv_(int *n, int *columns, double *a, int *lda, int *pivots, double *b, int *ldb, int *info);
extern void openblas_set_num_threads(int threads);
extern char *openblas_get_config(void);

static double now_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void fill(double *a, double *b, int n) {
    uint64_t state = 88172645463325252u;
    for (int row = 0; row < n; row++)
        b[row] = 0;
    for (int column = 0; column < n; column++)
        for (int row = 0; row < n; row++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            a[(size_t)column * (size_t)n + (size_t)row] = (double)(state >> 11) / 9007199254740992.0 - 0.5;
            b[row] += a[(size_t)column * (size_t)n + (size_t)row]; // the solution is 1 everywhere
        }
}

int main(int count, char **words) {
    int n = count == 3 ? atoi(words[1]) : 0, one = 1, info = 0;
    if (n < 2 || n > 100000) {
        fprintf(stderr, "usage: linpack N THREADS\n");
        return 2;
    }
    openblas_set_num_threads(atoi(words[2]));
    double *a = malloc(sizeof(double) * (size_t)n * (size_t)n), *b = malloc(sizeof(double) * (size_t)n);
    int *pivots = malloc(sizeof(int) * (size_t)n);
    if (!a || !b || !pivots) {
        fprintf(stderr, "linpack: no memory for %d equations\n", n);
        return 1;
    }
    fill(a, b, n);
    double before = now_s();
    dgesv_(&n, &one, a, &n, pivots, b, &n, &info);
    double took = now_s() - before, worst = 0;
    for (int row = 0; row < n; row++)
        worst = fmax(worst, fabs(b[row] - 1));
    if (info != 0 || worst > 1e6 * DBL_EPSILON * n) {
        fprintf(stderr, "linpack: the solution is wrong by %g\n", worst);
        return 1;
    }
    double size = n, operations = 2.0 / 3.0 * size * size * size + 2 * size * size;
    printf("{\"gflops\": %.6f, \"seconds\": %.6f, \"n\": %d, \"worst\": %g, \"library\": \"%s\"}\n",
           operations / took / 1e9, took, n, worst, openblas_get_config());
    return 0;
}
