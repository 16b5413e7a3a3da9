// SPDX-License-Identifier: GPL-2.0-or-later
#include "graph.h"

#include "activities.h"
#include "functions.h"
#include "stacks.h"
#include "tcg-plugin/die.h"
#include "tree.h"

#include <stdlib.h>

#define MAX_INTERRUPTIONS (1u << 18)

// What was interrupted in the kernel, and what the interrupt's work is where it has its own.
struct interruption {
    struct state saved;
    uint32_t activity, next_free;
};

static uint64_t (*executed_now)(void);
static uint64_t settled;
static struct state now;
static bool user_ran;
static unsigned owner;
static uint64_t behind_return; // of an interrupt, which is under way; 0: none
static struct interruption *interruptions;
static uint32_t used = 1, room, first_free;

void graph_prepare(uint64_t (*executed)(void)) {
    executed_now = executed;
    stacks_prepare(functions_stack_bytes());
    tree_prepare(functions_most_nodes());
    activities_prepare();
    now = (struct state){.node = NODE_ROOT, .activity = activity_begin(ACTIVITY_SYSTEM, functions_count(), 0)};
}

void graph_settle(void) {
    uint64_t executed = executed_now(), more = executed - settled;
    if (!more)
        return;
    activity_work(now.activity, now.node, now.soft, more);
    settled = executed;
}

static void entered(unsigned function, unsigned flags) {
    activity_entered(now.activity, now.node);
    if (!flags)
        return;
    if (flags & IS_SOFT)
        now.soft = true;
    if (flags & IS_CALL)
        activity_named(now.activity, function);
}

// Methods tell what a call is made on, unless deferred work of interrupts, which may be anybody's, calls them.
static void note_object(unsigned function) {
    int object = function_numbered(function)->object;
    if (object >= 0 && !now.soft)
        activity_on(now.activity, object);
}

static void begin(uint32_t parent, const struct place *place) {
    now.node = now.base = tree_child(parent, place->function);
    now.unresolved = false;
    entered(place->function, place->flags);
}

static void from_user(const struct place *place) {
    enum activity_kind kind = ACTIVITY_CALL;
    uint32_t parent = NODE_ROOT;
    if (place->flags & IS_INTERRUPT) {
        kind = ACTIVITY_INTERRUPT;
        parent = NODE_INTERRUPTS;
    } else if (place->flags & IS_EXCEPTION) {
        kind = ACTIVITY_EXCEPTION;
    }
    now = (struct state){.activity = activity_begin(kind, place->function, owner)};
    begin(parent, place);
}

static void new_thread(const struct place *place) {
    now = (struct state){.activity = activity_begin(ACTIVITY_SYSTEM, place->function, owner)};
    begin(NODE_THREADS, place);
}

static uint32_t interruption_begin(void) {
    uint32_t number = first_free;
    if (number) {
        first_free = interruptions[number].next_free;
    } else {
        if (used >= room) {
            room = room ? room * 2 : 256;
            interruptions = realloc(interruptions, room * sizeof(*interruptions));
            if (!interruptions || room > MAX_INTERRUPTIONS)
                die("more than %u interrupts are under way", used);
        }
        number = used++;
    }
    interruptions[number] = (struct interruption){.saved = now};
    return number;
}

static void interrupted(const struct place *place) {
    bool own_work = place->flags & IS_INTERRUPT;
    uint32_t number = interruption_begin(), parent = now.node;
    now.interruption = number;
    if (own_work) {
        now.activity = activity_begin(ACTIVITY_INTERRUPT, place->function, owner);
        now.soft = false;
        interruptions[number].activity = now.activity;
        parent = NODE_INTERRUPTS;
    }
    begin(parent, place);
}

static void interruption_end(void) {
    struct interruption *ended = &interruptions[now.interruption];
    uint32_t number = now.interruption;
    if (ended->activity)
        activity_end(ended->activity);
    now = ended->saved;
    ended->next_free = first_free;
    first_free = number;
}

// The first block behind a call says which function was called. One within the caller is no function: the address of
// the next instruction is wanted, or the stack of return addresses is filled.
static void resolve(const struct place *place) {
    now.unresolved = false;
    if (!place->at_start && tree_node(now.node)->function == place->function)
        return;
    begin(now.node, place);
    note_object(place->function);
}

// Another function's code is reached without a call.
static void jumped(const struct place *place) {
    uint32_t at = now.node, parent = now.node;
    if (place->flags & IS_THREAD) {
        new_thread(place);
        return;
    }
    while (at >= ROOT_NODES && tree_node(at)->function != place->function && at != now.base)
        at = tree_node(at)->parent;
    if (at != NODE_ROOT &&
        tree_node(at)->function == place->function) { // back to it, as from code that it rarely needs
        now.node = at;
        if (place->at_start)
            entered(place->function, place->flags);
        return;
    }
    if (function_numbered(tree_node(now.node)->function)->flags & IS_THUNK) {
        parent = tree_node(now.node)->parent;
        if (now.node == now.base) { // who called the thunk has called what it goes on to
            begin(parent, place);
            note_object(place->function);
            return;
        }
    }
    now.node = tree_child(parent, place->function);
    if (parent < ROOT_NODES)
        now.base = now.node;
    entered(place->function, place->at_start ? place->flags : 0);
    if (place->at_start)
        note_object(place->function);
}

void graph_block(const struct place *place) {
    bool is_entry = place->flags & (IS_INTERRUPT | IS_EXCEPTION);
    if (!user_ran && !behind_return && !now.unresolved && !is_entry && tree_node(now.node)->function == place->function)
        return;
    graph_settle();
    if (user_ran) {
        user_ran = false;
        behind_return = 0;
        from_user(place);
        return;
    }
    if (behind_return) { // an instruction that returns to the next one only waits for those before it
        if (place->address != behind_return && now.interruption)
            interruption_end();
        behind_return = 0;
    }
    if (is_entry)
        interrupted(place);
    else if (now.unresolved)
        resolve(place);
    else if (tree_node(now.node)->function != place->function)
        jumped(place);
}

void graph_user_block(unsigned whose) {
    if (!user_ran) {
        graph_settle();
        activity_end(now.activity);
        user_ran = true;
    }
    owner = whose;
}

void graph_call(uint64_t slot) {
    graph_settle();
    now.unresolved = false;
    stack_push(slot, &now);
    now.unresolved = true;
}

void graph_return(uint64_t slot) {
    graph_settle();
    stack_pop(slot, &now);
}

void graph_interrupt_return(uint64_t behind) {
    behind_return = behind;
}
