// SPDX-License-Identifier: GPL-2.0-or-later
#include "output.h"

#include "blocks.h"
#include "chunks.h"
#include "counters.h"

#define SPANS_KEPT 4096u

struct block_row {
    uint64_t vaddr;
    uint32_t insns, bytes;
    uint16_t class, ports;
    uint32_t lengths_at;
};

struct stretch_head {
    int64_t mark;
    struct totals now;
    uint32_t owner_count, device_count, row_count, pad;
};

struct count_row {
    uint64_t block, entries, executed;
};

struct span_row {
    uint64_t span;
    struct totals now;
};

static unsigned blocks_written;
static size_t lengths_written;
static struct span_row spans[SPANS_KEPT];
static struct guest_totals guest_spans[SPANS_KEPT];
static bool guest_counted;
static unsigned spans_kept;

static void put_spans(void) {
    if (!spans_kept)
        return;
    put_chunk("SPAN", spans_kept, spans_kept * sizeof(spans[0]));
    put(spans, spans_kept * sizeof(spans[0]));
    if (guest_counted) {
        put_chunk("VSPN", spans_kept, spans_kept * sizeof(guest_spans[0]));
        put(guest_spans, spans_kept * sizeof(guest_spans[0]));
    }
    spans_kept = 0;
}

static void put_new_blocks(void) {
    unsigned count = block_count();
    size_t length_count;
    const uint8_t *lengths = block_lengths(&length_count);
    put_chunk("BLCK", count - blocks_written, (count - blocks_written) * sizeof(struct block_row));
    for (; blocks_written < count; blocks_written++) {
        const struct block *block = block_at(blocks_written);
        struct block_row row = {.vaddr = block->vaddr, .insns = block->insns, .bytes = block->bytes};
        row.class = (uint16_t)block->class;
        row.ports = block->ports;
        row.lengths_at = block->lengths_at;
        put(&row, sizeof(row));
    }
    put_chunk("LENS", 0, length_count - lengths_written);
    if (length_count > lengths_written)
        put(lengths + lengths_written, length_count - lengths_written);
    lengths_written = length_count;
}

void output_open(const char *to, const struct config *config) {
    char *modes[2], *architecture[] = {config->architecture};
    static char counts[] = "counts", coverage[] = "coverage", on[] = "on", off[] = "off";
    guest_counted = config->guest_entry_size > 0;
    modes[0] = config->exact ? counts : coverage;
    modes[1] = config->devices ? on : off;
    chunks_open(to, "VTCOUNT2");
    put_texts("ARCH", architecture, 1);
    put_texts("MODE", modes, 2);
    put_owners(config);
    put_points("MRKN", config, false);
    put_points("SPNN", config, true);
}

static unsigned rows_changed(void) {
    unsigned changed = 0;
    for (unsigned i = 0; i < block_count(); i++) {
        const struct block *block = block_at(i);
        changed += counter_value(block->entries) != block->seen_entries ||
                   counter_value(block->executed) != block->seen_executed;
    }
    return changed;
}

static void put_changed_rows(void) {
    for (unsigned i = 0; i < block_count(); i++) {
        struct block *block = block_at(i);
        uint64_t entries = counter_value(block->entries), executed = counter_value(block->executed);
        struct count_row row = {i, entries - block->seen_entries, executed - block->seen_executed};
        if (!row.entries && !row.executed)
            continue;
        put(&row, sizeof(row));
        block->seen_entries = entries;
        block->seen_executed = executed;
    }
}

void output_stretch(int mark, const struct totals *now, const struct owner_counts *owners, unsigned owner_count,
                    const uint64_t *devices, unsigned device_count) {
    struct stretch_head head = {mark, *now, owner_count, device_count, rows_changed(), 0};
    put_spans();
    put_new_blocks();
    put_chunk("STEP", 1,
              sizeof(head) + owner_count * sizeof(*owners) + device_count * sizeof(*devices) +
                  head.row_count * sizeof(struct count_row));
    put(&head, sizeof(head));
    put(owners, owner_count * sizeof(*owners));
    put(devices, device_count * sizeof(*devices));
    put_changed_rows();
}

void output_guest(const struct guest_totals *now) {
    put_chunk("VIRT", 1, sizeof(*now));
    put(now, sizeof(*now));
}

void output_span(unsigned span, const struct totals *now, const struct guest_totals *guest) {
    if (spans_kept == SPANS_KEPT)
        put_spans();
    if (guest)
        guest_spans[spans_kept] = *guest;
    spans[spans_kept++] = (struct span_row){span, *now};
}

void output_close(char *const *devices, unsigned device_count) {
    put_texts("DEVN", devices, device_count);
    chunks_close();
}
