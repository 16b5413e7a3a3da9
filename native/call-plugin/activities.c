// SPDX-License-Identifier: GPL-2.0-or-later
#include "activities.h"

#include "tcg-plugin/die.h"
#include "tree.h"

#include <stdlib.h>
#include <string.h>

#define NO_FUNCTION UINT32_MAX
#define MAX_ACTIVITIES (1u << 20)
#define EXACT_CASES (1u << 19)
#define MAX_ROWS (1u << 21) // of one table
#define MAX_ALL_KEPT (1u << 22)
#define MAX_KEPT 4096u // steps of a call after which nobody waits to see what it is made on

// A step of a call of which it is not known yet what it is made on.
struct step {
    uint32_t node, entered;
    uint64_t self;
};

struct activity {
    struct purpose purpose;
    uint64_t own, soft;           // since it began
    uint64_t told_own, told_soft; // of these, in earlier stretches
    uint32_t next_free;
    bool live, named, settled; // settled: nothing is kept back any more
    uint32_t share;            // when settled
    struct step *steps;
    unsigned kept, room;
};

// A table of rows that begin with a key of `key_size` bytes.
struct table {
    size_t key_size, row_size;
    uint8_t *rows;
    uint32_t used, room;
    uint32_t *slots; // open addressing: row number + 1, or 0
    size_t slot_count;
};

static struct activity *activities;
static uint32_t used = 1, room, first_free;
static struct table works = {.key_size = sizeof(struct purpose) + 4, .row_size = sizeof(struct work_row)};
static struct table cases = {.key_size = sizeof(struct purpose) + 4 + 16, .row_size = sizeof(struct case_row)};
static bool rounded;
static uint32_t all_room; // for the steps that are kept back, of all activities

static size_t slot_of(const struct table *table, const void *key) {
    const uint8_t *bytes = key;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < table->key_size; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    size_t slot = (hash ^ hash >> 32) & (table->slot_count - 1);
    while (table->slots[slot] && memcmp(table->rows + (table->slots[slot] - 1) * table->row_size, key, table->key_size))
        slot = (slot + 1) & (table->slot_count - 1);
    return slot;
}

static void make_room(struct table *table) {
    if (table->used == MAX_ROWS)
        die("more than %u kinds of work, or of cases of it", MAX_ROWS);
    if (table->used == table->room) {
        table->room = table->room ? table->room * 2 : 1024;
        table->rows = realloc(table->rows, table->room * table->row_size);
        if (!table->rows)
            die("out of memory for %u rows", table->room);
    }
    if (table->used * 2u < table->slot_count)
        return;
    table->slot_count = table->slot_count ? table->slot_count * 2 : 4096;
    free(table->slots);
    table->slots = calloc(table->slot_count, sizeof(*table->slots));
    if (!table->slots)
        die("out of memory for rows");
    for (uint32_t i = 0; i < table->used; i++)
        table->slots[slot_of(table, table->rows + i * table->row_size)] = i + 1;
}

// The row that begins as `key`; a new one has zeros behind it.
static void *row_of(struct table *table, const void *key) {
    make_room(table);
    size_t slot = slot_of(table, key);
    if (!table->slots[slot]) {
        uint8_t *row = table->rows + table->used * table->row_size;
        memset(row, 0, table->row_size);
        memcpy(row, key, table->key_size);
        table->slots[slot] = ++table->used;
    }
    return table->rows + (table->slots[slot] - 1) * table->row_size;
}

void activities_prepare(void) {
    make_room(&works);
    make_room(&cases);
}

// The number of the row of a purpose, by which the tree keeps figures.
static uint32_t share_of(const struct purpose *purpose) {
    struct work_row key = {.purpose = *purpose};
    struct work_row *row = row_of(&works, &key);
    return (uint32_t)(row - (struct work_row *)works.rows);
}

static void give_back(struct activity *one) {
    uint32_t share = share_of(&one->purpose);
    for (unsigned i = 0; i < one->kept; i++)
        tree_add(one->steps[i].node, share, one->steps[i].self, one->steps[i].entered);
    one->kept = 0;
}

static void settle_purpose(struct activity *one) {
    one->settled = true;
    one->share = share_of(&one->purpose);
    give_back(one);
}

uint32_t activity_begin(enum activity_kind kind, uint32_t function, unsigned owner) {
    uint32_t number = first_free;
    if (number) {
        first_free = activities[number].next_free;
    } else {
        if (used >= room) {
            room = room ? room * 2 : 1024;
            activities = realloc(activities, room * sizeof(*activities));
            if (!activities || room > MAX_ACTIVITIES)
                die("more than %u calls at a time", used);
            memset(activities + used, 0, (room - used) * sizeof(*activities));
        }
        number = used++;
    }
    struct step *steps = activities[number].steps;
    unsigned steps_room = activities[number].room;
    struct activity *one = &activities[number];
    *one = (struct activity){.purpose = {(uint16_t)kind, (uint16_t)owner, -1, function},
                             .live = true,
                             .named = kind != ACTIVITY_CALL,
                             .steps = steps,
                             .room = steps_room};
    if (one->named)
        settle_purpose(one);
    return number;
}

void activity_named(uint32_t activity, uint32_t function) {
    if (activities[activity].named)
        return;
    activities[activity].named = true;
    activities[activity].purpose.function = function;
}

void activity_on(uint32_t activity, int object) {
    struct activity *one = &activities[activity];
    if (one->settled || !one->named)
        return;
    one->purpose.object = object;
    settle_purpose(one);
}

static void step_at(struct activity *one, uint32_t node, uint64_t self, uint32_t entered) {
    if (!one->settled && (one->kept == MAX_KEPT || (one->kept == one->room && all_room >= MAX_ALL_KEPT)))
        settle_purpose(one);
    if (one->settled) {
        tree_add(node, one->share, self, entered);
        return;
    }
    if (one->kept && one->steps[one->kept - 1].node == node) {
        one->steps[one->kept - 1].self += self;
        one->steps[one->kept - 1].entered += entered;
        return;
    }
    if (one->kept == one->room) {
        all_room += one->room ? one->room : 32;
        one->room = one->room ? one->room * 2 : 32;
        one->steps = realloc(one->steps, one->room * sizeof(*one->steps));
        if (!one->steps)
            die("out of memory for the steps of calls");
    }
    one->steps[one->kept++] = (struct step){node, entered, self};
}

void activity_work(uint32_t activity, uint32_t node, bool soft, uint64_t instructions) {
    struct activity *one = &activities[activity];
    if (soft)
        one->soft += instructions;
    else
        one->own += instructions;
    step_at(one, node, instructions, 0);
}

void activity_entered(uint32_t activity, uint32_t node) {
    step_at(&activities[activity], node, 0, 1);
}

static void tell(struct activity *one) {
    struct work_row key = {.purpose = one->purpose}, *row;
    if (one->own == one->told_own && one->soft == one->told_soft)
        return;
    row = row_of(&works, &key);
    row->own += one->own - one->told_own;
    row->soft += one->soft - one->told_soft;
    one->told_own = one->own;
    one->told_soft = one->soft;
}

static uint64_t rounded_down(uint64_t value) {
    unsigned places = 0;
    while (value >> places > 127)
        places++;
    return value >> places << places;
}

void activity_end(uint32_t activity) {
    struct activity *one = &activities[activity];
    struct case_row key = {.purpose = one->purpose, .own = one->own, .soft = one->soft}, *row;
    if (!one->live)
        return;
    give_back(one);
    tell(one);
    if (cases.used >= EXACT_CASES) {
        rounded = true;
        key.own = rounded_down(key.own);
        key.soft = rounded_down(key.soft);
    }
    row = row_of(&cases, &key);
    row->count++;
    row->all_own += one->own;
    row->all_soft += one->soft;
    one->live = false;
    one->next_free = first_free;
    first_free = activity;
}

uint32_t activities_work_rows(const struct work_row **rows) {
    for (uint32_t i = 1; i < used; i++)
        if (activities[i].live) {
            give_back(&activities[i]);
            tell(&activities[i]);
        }
    *rows = (const struct work_row *)works.rows;
    return works.used;
}

uint32_t activities_case_rows(const struct case_row **rows) {
    *rows = (const struct case_row *)cases.rows;
    return cases.used;
}

void activities_begin_anew(void) {
    struct work_row *row = (struct work_row *)works.rows;
    for (uint32_t i = 0; i < works.used; i++)
        row[i].own = row[i].soft = 0;
    cases.used = 0;
    memset(cases.slots, 0, cases.slot_count * sizeof(*cases.slots));
}

bool activities_rounded(void) {
    return rounded;
}
