/* SPDX-License-Identifier: Apache-2.0 */
#include "load-client/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NS (UINT64_C(86400) * 1000000000)

static struct page *page_new(struct plan *plan) {
    if (plan->page_count == MAX_PAGES)
        return NULL;
    struct page *page = &plan->pages[plan->page_count++];
    page->method = "GET";
    page->status = -1;
    return page;
}

static bool whole(const char *text, uint64_t most, uint64_t *value) {
    uint64_t read = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        read = 10 * read + (uint64_t)(*text - '0');
        if (read > most)
            return false;
    }
    *value = read;
    return true;
}

static const char *set_page(struct page *page, const char *key, char *value) {
    uint64_t number = 0;
    if (page == NULL)
        return "no page is open, or there are too many";
    if (strcmp(key, "status") == 0 && whole(value, 999, &number))
        page->status = (int)number;
    else if (strcmp(key, "method") == 0)
        page->method = value;
    else if (strcmp(key, "contains") == 0)
        page->contains = value;
    else if (strcmp(key, "sha256") == 0)
        page->sha256 = value;
    else if (strcmp(key, "answer") == 0)
        page->answer = value;
    else if (strcmp(key, "word") == 0)
        return list_add(&page->words, value) ? NULL : "no memory";
    else
        return "not a word of a load";
    return NULL;
}

static const char *set(struct plan *plan, const char *key, char *value) {
    const struct {
        const char *key;
        uint64_t *number, most;
    } numbers[] = {{"at-once", &plan->at_once, MAX_CONNECTIONS},
                   {"sessions", &plan->sessions, UINT32_MAX},
                   {"calls", &plan->calls, 1000000},
                   {"keep", &plan->keep, 1},
                   {"keep-between", &plan->keep_between, 1},
                   {"port", &plan->port, 65535},
                   {"step", &plan->step, 65535},
                   {"timeout-ns", &plan->timeout_ns, MOST_NS},
                   {"limit-ns", &plan->limit_ns, MOST_NS},
                   {"pause-least-ns", &plan->pause_least_ns, MOST_NS},
                   {"pause-most-ns", &plan->pause_most_ns, MOST_NS},
                   {"seed", &plan->seed, INT64_MAX},
                   {"rate", &plan->rate, UINT64_C(1000000000)},
                   {"to", &plan->to, UINT64_C(1000000000)},
                   {"step-percent", &plan->step_percent, 1000},
                   {"refine", &plan->refine, 20},
                   {"stage-ns", &plan->stage_ns, MOST_NS},
                   {"random", &plan->random, 1}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].key, key) == 0)
            return whole(value, numbers[i].most, numbers[i].number) ? NULL : "not a number in range";
    if (strcmp(key, "address") == 0) {
        plan->address = value;
        return NULL;
    }
    if (strcmp(key, "protocol") == 0) {
        static const char *const names[] = {"http", "redis", "command"};
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
            if (strcmp(value, names[i]) != 0)
                continue;
            plan->protocol = (enum protocol)i;
            return NULL;
        }
        return "neither http nor redis nor command";
    }
    if (strcmp(key, "page") == 0) {
        struct page *page = page_new(plan);
        if (page == NULL)
            return "too many pages";
        page->path = value;
        return NULL;
    }
    return set_page(plan->page_count > 0 ? &plan->pages[plan->page_count - 1] : NULL, key, value);
}

static bool http_request(const struct plan *plan, struct page *page) {
    const char *last = plan->keep ? "" : "Connection: close\r\n";
    int length =
        asprintf(&page->request, "%s %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: vmtailor\r\nAccept: */*\r\n%s\r\n",
                 page->method, page->path, last);
    page->length = length > 0 ? (size_t)length : 0;
    return length > 0;
}

/* A command as Redis takes it from libraries: an array of texts, each with its length. */
static bool redis_request(struct page *page) {
    size_t size = 32;
    for (size_t i = 0; i < page->words.count; i++)
        size += strlen(page->words.items[i]) + 32;
    char *end = page->request = malloc(size);
    if (page->request == NULL)
        return false;
    end += sprintf(end, "*%zu\r\n", page->words.count);
    for (size_t i = 0; i < page->words.count; i++)
        end += sprintf(end, "$%zu\r\n%s\r\n", strlen(page->words.items[i]), page->words.items[i]);
    page->length = (size_t)(end - page->request);
    return true;
}

const char *plan_read(struct plan *plan, int count, char **words) {
    memset(plan, 0, sizeof *plan);
    plan->address = "127.0.0.1";
    plan->at_once = plan->calls = 1;
    plan->timeout_ns = UINT64_C(10000000000);
    plan->limit_ns = UINT64_C(600000000000);
    plan->step_percent = 125;
    plan->refine = 4;
    plan->stage_ns = 500000000;
    for (int i = 0; i < count; i++) {
        char *equals = strchr(words[i], '=');
        if (equals == NULL)
            return "a word without a value";
        *equals = '\0';
        const char *wrong = set(plan, words[i], equals + 1);
        if (wrong != NULL)
            return wrong;
    }
    bool to_port = plan->protocol != COMMAND;
    if (plan->page_count == 0 || (to_port && plan->port == 0) || plan->at_once == 0 || plan->calls == 0 ||
        plan->timeout_ns == 0)
        return "no page, port, connection, call or time is named";
    if (plan->rate > 0 ? plan->stage_ns == 0 || plan->step_percent <= 100 : plan->sessions == 0)
        return "neither a rate nor a number of sessions is named";
    if (plan->pause_most_ns < plan->pause_least_ns)
        return "the longest pause is shorter than the shortest";
    for (unsigned i = 0; i < plan->page_count; i++) {
        struct page *page = &plan->pages[i];
        if (plan->protocol != HTTP && page->words.count == 0)
            return "a command of no words";
        if ((plan->protocol == REDIS && !redis_request(page)) ||
            (plan->protocol == HTTP && !http_request(plan, page)) || !match_start(&page->match, page->contains))
            return "no memory";
    }
    return NULL;
}
