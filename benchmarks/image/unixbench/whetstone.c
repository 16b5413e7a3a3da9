// SPDX-License-Identifier: Apache-2.0
// Floating point in double precision: Whetstone's eight modules with their published weights. A pass of all is 100,000
// of its instructions.
#include "unixbench.h"

#include <math.h>

#define APART __attribute__((noipa)) // neither inlined nor known to its callers

static const double T = 0.499975, T1 = 0.50025, T2 = 2.0;
static double e[4];
static volatile double result;

static APART void array_as_parameter(double a[4]) {
    for (int i = 0; i < 6; i++) {
        a[0] = (a[0] + a[1] + a[2] - a[3]) * T;
        a[1] = (a[0] + a[1] - a[2] + a[3]) * T;
        a[2] = (a[0] - a[1] + a[2] + a[3]) * T;
        a[3] = (-a[0] + a[1] + a[2] + a[3]) / T2;
    }
}

static APART void procedure(double x, double y, double *z) {
    double left = T * (x + y), right = T * (left + y);
    *z = (left + right) / T2;
}

static APART void references(int j, int k, int l) {
    e[j] = e[k];
    e[k] = e[l];
    e[l] = e[j];
}

static APART void reset(double a[4]) {
    a[0] = 1;
    a[1] = a[2] = a[3] = -1;
}

static APART void elements(int times) {
    for (int i = 0; i < times; i++) {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) * T;
    }
}

static APART int jumps(int times) {
    int j = 1;
    for (int i = 0; i < times; i++) {
        j = j == 1 ? 2 : 3;
        j = j > 2 ? 0 : 1;
        j = j < 1 ? 1 : 0;
        __asm__ volatile("" : "+r"(j));
    }
    return j;
}

static APART void integers(int times) {
    int j = 1, k = 2, l = 3;
    for (int i = 0; i < times; i++) {
        j = j * (k - j) * (l - k);
        k = l * k - (l - j) * k;
        l = (l - k) * (k + j);
        e[(l - 2) & 3] = j + k + l;
        e[(k - 2) & 3] = j * k * l;
        __asm__ volatile("" : "+r"(j), "+r"(k), "+r"(l));
    }
}

static APART double trigonometry(int times) {
    double x = 0.5, y = 0.5;
    for (int i = 0; i < times; i++) {
        x = T * atan(T2 * sin(x) * cos(x) / (cos(x + y) + cos(x - y) - 1.0));
        y = T * atan(T2 * sin(y) * cos(y) / (cos(x + y) + cos(x - y) - 1.0));
    }
    return x + y;
}

static APART double functions(int times) {
    double x = 0.75;
    for (int i = 0; i < times; i++)
        x = sqrt(exp(log(x) / T1));
    return x;
}

static void pass(void) {
    double z = 0;
    reset(e);
    elements(12);
    for (int i = 0; i < 14; i++)
        array_as_parameter(e);
    double sum = jumps(345);
    integers(210);
    sum += trigonometry(32);
    for (int i = 0; i < 899; i++)
        procedure(1.0, 1.0, &z);
    reset(e);
    for (int i = 0; i < 616; i++)
        references(0, 1, 2);
    result = sum + z + functions(93) + e[0] + e[3];
}

struct outcome whetstone(double seconds) {
    double passes = 0, before;
    start_timer(seconds);
    for (before = now_s(); !over; passes++)
        pass();
    return (struct outcome){passes / 10, now_s() - before}; // 100,000 instructions each, counted in millions
}
