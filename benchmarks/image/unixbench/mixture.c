// SPDX-License-Identifier: Apache-2.0
// Works on integers, records and strings, in the proportions that Dhrystone states for system programs: about half
// assignments, a third control, a sixth calls. As there, the calls lie in another file than the callers, so that none
// of them is compiled away.
#include "mixture.h"

#include <string.h>

struct record head, tail;
static int global_number, vector[50], matrix[50][50];
char global_letter, other_letter;
volatile int sink;

void add_to(int left, int right, int *result) {
    *result = left + 2 + right;
}

enum colour next_colour(enum colour given) {
    switch (given) {
    case RED:
        return WHITE;
    case GREEN:
        return global_number > 100 ? RED : BLACK;
    case BLUE:
        return GREEN;
    case WHITE:
        return BLACK;
    default:
        return BLUE;
    }
}

int same_letter(char left, char right) {
    char copy = left;
    if (copy != right)
        return 0;
    global_letter = copy;
    return 1;
}

int is_white(enum colour given) {
    enum colour local = given;
    return local == WHITE;
}

int after(const char *left, const char *right) {
    int place = 2;
    char letter = 'A';
    while (place <= 2)
        if (!same_letter(left[place], right[place + 1])) {
            letter = 'B';
            place++;
        } else {
            return 0;
        }
    if (letter == 'W')
        place = 7;
    return strcmp(left, right) > 0 ? (global_number = place + 7, 1) : letter == 'R';
}

void into_arrays(int row, int value) {
    int at = row + 5;
    vector[at] = value;
    vector[at + 1] = vector[at];
    vector[at + 30] = at;
    for (int column = at; column <= at + 1; column++)
        matrix[at][column] = at;
    matrix[at][at - 1]++;
    matrix[at + 20][at] = vector[at];
    global_number = 5;
}

void letters(void) {
    int equal = global_letter == 'A';
    equal |= other_letter == 'B';
    other_letter = 'B';
    sink = equal;
}

void over_records(struct record *given) {
    struct record *other = given->next;
    *other = head;
    given->number = 5;
    other->number = given->number;
    other->next = given->next;
    add_to(global_number, 10, &other->number);
    if (other->first == RED) {
        other->number = 6;
        other->second = next_colour(given->second);
        other->next = head.next;
        add_to(other->number, 10, &other->number);
    } else {
        *given = *other;
    }
}

void back_and_forth(int *value) {
    int left = *value + 10;
    for (int tries = 0; tries < 1; tries++)
        if (global_letter == 'A') {
            left--;
            *value = left - global_number;
        }
}
