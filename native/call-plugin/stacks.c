// SPDX-License-Identifier: GPL-2.0-or-later
#include "stacks.h"

#include "tcg-plugin/die.h"

#include <stddef.h>
#include <stdlib.h>

#define MAX_STACKS (1u << 18)
#define MAX_FRAMES (1u << 23) // room of all stacks

struct frame {
    uint64_t slot;
    struct state caller;
};

// Frames in descending order of their slots, as stacks grow.
struct stack {
    uint64_t region;
    struct frame *frames;
    unsigned used, room;
};

static struct stack *stacks; // open addressing by region; one without room is free
static size_t size, count;
static struct stack *last;
static unsigned shift, frames;

static struct stack *place_of(uint64_t region) {
    size_t at = (region * 0x9e3779b97f4a7c15u >> 24) & (size - 1);
    while (stacks[at].room && stacks[at].region != region)
        at = (at + 1) & (size - 1);
    return &stacks[at];
}

static void grow(void) {
    struct stack *old = stacks;
    size_t before = size;
    size = size ? size * 2 : 1024;
    stacks = calloc(size, sizeof(*stacks));
    if (!stacks || size > MAX_STACKS)
        die("the kernel uses more stacks than this can follow (%zu)", count);
    for (size_t i = 0; i < before; i++)
        if (old[i].room)
            *place_of(old[i].region) = old[i];
    free(old);
    last = NULL;
}

void stacks_prepare(uint64_t stack_bytes) {
    while (stack_bytes >> shift > 1)
        shift++;
    grow();
}

static struct stack *stack_at(uint64_t slot) {
    uint64_t region = slot >> shift;
    if (last && last->region == region)
        return last;
    last = place_of(region);
    if (last->room)
        return last;
    if (++count * 2 > size) {
        grow();
        last = place_of(region);
    }
    *last = (struct stack){.region = region, .room = 8};
    frames += last->room;
    last->frames = malloc(last->room * sizeof(*last->frames));
    if (!last->frames)
        die("out of memory for stacks");
    return last;
}

void stack_push(uint64_t slot, const struct state *caller) {
    struct stack *stack = stack_at(slot);
    while (stack->used && stack->frames[stack->used - 1].slot <= slot)
        stack->used--;
    if (stack->used == stack->room) {
        frames += stack->room;
        stack->room *= 2;
        if (frames > MAX_FRAMES)
            die("the kernel's stacks have more frames than this can follow (%u)", frames);
        stack->frames = realloc(stack->frames, stack->room * sizeof(*stack->frames));
        if (!stack->frames)
            die("out of memory for %u frames", stack->room);
    }
    stack->frames[stack->used++] = (struct frame){slot, *caller};
}

bool stack_pop(uint64_t slot, struct state *caller) {
    struct stack *stack = stack_at(slot);
    while (stack->used && stack->frames[stack->used - 1].slot < slot)
        stack->used--;
    if (!stack->used || stack->frames[stack->used - 1].slot != slot)
        return false;
    *caller = stack->frames[--stack->used].caller;
    return true;
}
