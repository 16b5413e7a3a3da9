// SPDX-License-Identifier: Apache-2.0
// What the two halves of the mixture share.
#ifndef MIXTURE_H
#define MIXTURE_H

enum colour { RED, GREEN, BLUE, WHITE, BLACK };

struct record {
    struct record *next;
    enum colour first, second;
    int number;
    char text[31];
};

extern struct record head, tail;
extern char global_letter, other_letter;
extern volatile int sink;

void add_to(int left, int right, int *result);
enum colour next_colour(enum colour given);
int same_letter(char left, char right);
int is_white(enum colour given);
int after(const char *left, const char *right);
void into_arrays(int row, int value);
void letters(void);
void over_records(struct record *given);
void back_and_forth(int *value);
#endif
