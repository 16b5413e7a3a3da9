/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one HTTP/1.x response as it comes in: status, then the body (by length, in chunks, or to the end). */
#ifndef VT_HTTP_H
#define VT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_LINE 4096
#define HTTP_LINES 200

enum http_state { HTTP_STATUS, HTTP_HEADER, HTTP_SIZE, HTTP_BODY, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_DONE, HTTP_BAD };

struct http {
    enum http_state state;
    int status;
    bool no_body; /* asked by HEAD */
    bool chunked, sized;
    bool closes;   /* the server says that it closes the connection */
    uint64_t left; /* bytes of the body, or of this chunk */
    int lines;
    char line[HTTP_LINE];
    size_t held;
};

typedef void http_sink(void *context, const char *data, size_t length);

void http_start(struct http *http, bool no_body);
/* Take bytes; parts of the body go to `sink`. The state says when it is done (HTTP_DONE) or no HTTP (HTTP_BAD). */
void http_add(struct http *http, const char *data, size_t length, http_sink *sink, void *context);
/* The other side closed: true when the response is whole. */
bool http_end(struct http *http);

#endif
