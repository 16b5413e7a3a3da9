/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http.h"

#include <string.h>
#include <strings.h>

void http_start(struct http *http, bool no_body) {
    memset(http, 0, offsetof(struct http, line));
    http->held = 0;
    http->no_body = no_body;
}

static bool digits(const char *text, unsigned base, uint64_t *value) {
    *value = 0;
    int count = 0;
    for (;; text++, count++) {
        unsigned digit;
        if (*text >= '0' && *text <= '9')
            digit = (unsigned)(*text - '0');
        else if (base == 16 && (*text | 32) >= 'a' && (*text | 32) <= 'f')
            digit = (unsigned)((*text | 32) - 'a') + 10;
        else
            break;
        if (*value > (UINT64_MAX >> 8))
            return false;
        *value = *value * base + digit;
    }
    return count > 0 && (*text == '\0' || *text == ' ' || *text == ';' || *text == '\t');
}

static void read_status(struct http *http) {
    const char *line = http->line;
    uint64_t status;
    http->state = HTTP_BAD;
    if (strncmp(line, "HTTP/1.", 7) != 0 || line[7] == '\0' || line[8] != ' ' || !digits(line + 9, 10, &status))
        return;
    if (status < 100 || status > 999)
        return;
    http->status = (int)status;
    http->state = HTTP_HEADER;
}

static void headers_end(struct http *http) {
    if (http->status < 200) { /* 100 Continue and its like: the real one follows */
        bool no_body = http->no_body;
        http_start(http, no_body);
    } else if (http->no_body || http->status == 204 || http->status == 304) {
        http->state = HTTP_DONE;
    } else if (http->chunked) {
        http->state = HTTP_SIZE;
    } else {
        http->state = http->sized && http->left == 0 ? HTTP_DONE : HTTP_BODY;
    }
}

static void read_header(struct http *http) {
    const char *colon = strchr(http->line, ':');
    if (http->line[0] == '\0') {
        headers_end(http);
        return;
    }
    if (colon == NULL)
        return;
    size_t length = (size_t)(colon - http->line);
    const char *value = colon + 1;
    value += strspn(value, " \t");
    if (length == 14 && strncasecmp(http->line, "content-length", 14) == 0) {
        http->sized = digits(value, 10, &http->left);
        if (!http->sized)
            http->state = HTTP_BAD;
    } else if (length == 10 && strncasecmp(http->line, "connection", 10) == 0) {
        http->closes = strcasecmp(value, "close") == 0;
    } else if (length == 17 && strncasecmp(http->line, "transfer-encoding", 17) == 0) {
        http->chunked = strcasecmp(value, "chunked") == 0;
    }
}

static void read_size(struct http *http) {
    http->state = !digits(http->line, 16, &http->left) ? HTTP_BAD : http->left == 0 ? HTTP_TRAILER : HTTP_BODY;
}

static void end_of_line(struct http *http) {
    if (http->held > 0 && http->line[http->held - 1] == '\r')
        http->held--;
    http->line[http->held] = '\0';
    http->held = 0;
    if (++http->lines > HTTP_LINES && http->state != HTTP_SIZE && http->state != HTTP_CHUNK_END)
        http->state = HTTP_BAD;
    else if (http->state == HTTP_STATUS)
        read_status(http);
    else if (http->state == HTTP_HEADER)
        read_header(http);
    else if (http->state == HTTP_SIZE)
        read_size(http);
    else if (http->state == HTTP_CHUNK_END)
        http->state = http->line[0] == '\0' ? HTTP_SIZE : HTTP_BAD;
    else if (http->line[0] == '\0') /* HTTP_TRAILER */
        http->state = HTTP_DONE;
}

void http_add(struct http *http, const char *data, size_t length, http_sink *sink, void *context) {
    while (length > 0 && http->state != HTTP_DONE && http->state != HTTP_BAD) {
        if (http->state == HTTP_BODY) {
            bool bounded = http->chunked || http->sized;
            size_t part = bounded && http->left < length ? (size_t)http->left : length;
            sink(context, data, part);
            data += part;
            length -= part;
            http->left -= bounded ? part : 0;
            if (bounded && http->left == 0)
                http->state = http->chunked ? HTTP_CHUNK_END : HTTP_DONE;
            continue;
        }
        char next = *data++;
        length--;
        if (next == '\n')
            end_of_line(http);
        else if (http->held < HTTP_LINE - 1)
            http->line[http->held++] = next;
        else
            http->state = HTTP_BAD;
    }
}

bool http_end(struct http *http) {
    if (http->state == HTTP_BODY && !http->chunked && !http->sized)
        http->state = HTTP_DONE;
    return http->state == HTTP_DONE;
}
