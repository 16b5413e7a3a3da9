/* SPDX-License-Identifier: Apache-2.0 */
#include "init/container/order.h"

#include <stdlib.h>
#include <string.h>

#define MOST_CELLS 65535

bool order_is_whole(const char *text, size_t length) {
    return length >= 2 && text[length - 1] == '\0' && text[length - 2] == '\0';
}

/* A decimal number from 0 to `most`, or -1. */
static int number(const char *text, int most) {
    int value = 0;
    if (*text == '\0')
        return -1;
    for (; *text >= '0' && *text <= '9' && value <= most; text++)
        value = 10 * value + (*text - '0');
    return *text == '\0' && value <= most ? value : -1;
}

/* That init can start further processes is told by this word among its bytes, with a NUL on either side. */
static const char BUILTIN[] = "\0builtin";

static const char *set(struct order *order, const char *key, char *value) {
    const struct {
        const char *key;
        const char **text;
    } texts[] = {{"user", &order->user}, {"cwd", &order->cwd}, {BUILTIN + 1, &order->builtin}, {"path", &order->path}};
    const struct {
        const char *key;
        int most;
        bool *flag;
        int *number;
    } numbers[] = {{"terminal", 1, &order->terminal, NULL},     {"stdin", 1, &order->takes_stdin, NULL},
                   {"privileged", 1, &order->privileged, NULL}, {"detach", 1, &order->detach, NULL},
                   {"follow", 1, &order->follow, NULL},         {"rows", MOST_CELLS, NULL, &order->rows},
                   {"cols", MOST_CELLS, NULL, &order->cols}};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].key, key) == 0) {
            *texts[i].text = value;
            return NULL;
        }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].key, key) != 0)
            continue;
        int read = number(value, numbers[i].most);
        if (read < 0)
            return "not a number in range";
        if (numbers[i].flag != NULL)
            *numbers[i].flag = read;
        else
            *numbers[i].number = read;
        return NULL;
    }
    if (strcmp(key, "arg") == 0)
        return list_add(&order->argv, value) ? NULL : "no memory";
    if (strcmp(key, "env") == 0)
        return strchr(value, '=') == NULL ? "not NAME=value" : list_add(&order->env, value) ? NULL : "no memory";
    return "unknown record";
}

const char *order_read(struct order *order, char *text, size_t length) {
    memset(order, 0, sizeof *order);
    if (!order_is_whole(text, length))
        return "not ended by an empty record";
    if (strcmp(text, "vmtailor 1") != 0)
        return "not of this version";
    char *end = text + length - 1;
    for (char *record = text + strlen(text) + 1; record < end; record += strlen(record) + 1) {
        char *space = strchr(record, ' ');
        if (space == NULL)
            return "a record without a value";
        *space = '\0';
        const char *wrong = set(order, record, space + 1);
        if (wrong != NULL)
            return wrong;
        record = space + 1;
    }
    if (order->builtin == NULL && order->argv.count == 0)
        return "no command was given";
    return NULL;
}

void order_free(struct order *order) {
    free(order->argv.items);
    free(order->env.items);
    memset(order, 0, sizeof *order);
}
