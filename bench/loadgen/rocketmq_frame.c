/* Frames of the remoting protocol: requests as a Java client of 4.9.8 writes them, and answers, each with a JSON or a binary header. */
#include "rocketmq.h"

#include <stdio.h>
#include <string.h>

enum { LANGUAGE_JAVA = 0, VERSION = 409, FLAG_ANSWER = 1, PREFIX_BYTES = 8, BINARY_FIXED_BYTES = 21, FRAME_BYTES_MAX = 1 << 24 };

struct rocketmq_text rocketmq_word(const char *text) { return (struct rocketmq_text){(const uint8_t *)text, strlen(text)}; }

static uint32_t get_u16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
uint32_t rocketmq_u32(const uint8_t *at) { return get_u16(at) << 16 | get_u16(at + 2); }
uint64_t rocketmq_u64(const uint8_t *at) { return (uint64_t)rocketmq_u32(at) << 32 | rocketmq_u32(at + 4); }

static uint8_t *put_u16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t size_bytes) {
    memcpy(at, bytes, size_bytes);
    return at + size_bytes;
}

static uint8_t *put_literal(uint8_t *at, const char *text) { return put_bytes(at, text, strlen(text)); }

static uint8_t *put_decimal(uint8_t *at, uint32_t value) {
    uint8_t digits[10];
    size_t count = 0;
    do digits[sizeof digits - ++count] = (uint8_t)('0' + value % 10);
    while (value /= 10);
    return put_bytes(at, digits + sizeof digits - count, count);
}

/* The separators of properties are the only bytes of ours that JSON does not take as they are. */
static uint8_t *put_json_text(uint8_t *at, struct rocketmq_text text) {
    *at++ = '"';
    for (size_t i = 0; i < text.size; i++) {
        if (text.at[i] >= ' ') *at++ = text.at[i];
        else {
            at = put_literal(at, "\\u000");
            *at++ = (uint8_t)('0' + text.at[i]);
        }
    }
    *at++ = '"';
    return at;
}

static uint8_t *put_json(uint8_t *at, int code, int32_t opaque, const struct rocketmq_field *fields, uint32_t count) {
    at = put_decimal(put_literal(at, "{\"code\":"), (uint32_t)code);
    at = put_literal(at, ",\"extFields\":{");
    for (uint32_t i = 0; i < count; i++) {
        if (i) *at++ = ',';
        at = put_json_text(at, fields[i].name);
        *at++ = ':';
        at = put_json_text(at, fields[i].value);
    }
    at = put_literal(at, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
    at = put_decimal(at, (uint32_t)opaque);
    return put_literal(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}");
}

static uint8_t *put_binary(uint8_t *at, int code, int32_t opaque, const struct rocketmq_field *fields, uint32_t count) {
    at = put_u16(at, (uint32_t)code);
    *at++ = LANGUAGE_JAVA;
    at = put_u16(at, VERSION);
    put_u32(at, (uint32_t)opaque);
    put_u32(at + 4, 0); /* flag */
    put_u32(at + 8, 0); /* no remark */
    uint8_t *size_at = at + 12;
    at += 16;
    for (uint32_t i = 0; i < count; i++) {
        at = put_bytes(put_u16(at, (uint32_t)fields[i].name.size), fields[i].name.at, fields[i].name.size);
        put_u32(at, (uint32_t)fields[i].value.size);
        at = put_bytes(at + 4, fields[i].value.at, fields[i].value.size);
    }
    put_u32(size_at, (uint32_t)(at - size_at - 4));
    return at;
}

/* Write a request up to where its body begins. */
uint8_t *rocketmq_head(uint8_t *at, bool binary, int code, int32_t opaque, const struct rocketmq_field *fields, uint32_t count, size_t body_bytes) {
    uint8_t *header = at + PREFIX_BYTES;
    uint8_t *end = binary ? put_binary(header, code, opaque, fields, count) : put_json(header, code, opaque, fields, count);
    if (end - at > HEAD_BYTES_MAX) fail("a head of %zu bytes", (size_t)(end - at));
    put_u32(at, (uint32_t)(4 + (size_t)(end - header) + body_bytes));
    put_u32(at + 4, (uint32_t)(end - header) | (binary ? 1u << 24 : 0));
    return end;
}

static _Noreturn void no_header(const uint8_t *at, const uint8_t *end) {
    size_t size = (size_t)(end - at);
    fail("not a header: %.*s", (int)(size < 300 ? size : 300), (const char *)at);
}

/* A string's end is behind its closing quote; NULL when it has none. */
static const uint8_t *json_text(const uint8_t *at, const uint8_t *end, struct rocketmq_text *text) {
    if (at == end || *at != '"') return NULL;
    text->at = ++at;
    while (at < end && *at != '"') at += *at == '\\' ? 2 : 1;
    if (at >= end) return NULL;
    text->size = (size_t)(at - text->at);
    return at + 1;
}

static const uint8_t *json_space(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\n')) at++;
    return at;
}

/* A string, or a number or a literal as it stands. */
static const uint8_t *json_scalar(const uint8_t *at, const uint8_t *end, struct rocketmq_text *text) {
    if (at < end && *at == '"') return json_text(at, end, text);
    text->at = at;
    while (at < end && *at != ',' && *at != '}' && *at > ' ' && *at != '{' && *at != '[') at++;
    text->size = (size_t)(at - text->at);
    return text->size ? at : NULL;
}

/* The name that is next in an object, and what is behind its colon; NULL behind the last one, when `*end_at` is set. */
static const uint8_t *json_name(const uint8_t *at, const uint8_t *end, struct rocketmq_text *name, const uint8_t **end_at) {
    at = json_space(at, end);
    if (at < end && *at == ',') at = json_space(at + 1, end);
    if (at < end && *at == '}') {
        *end_at = at + 1;
        return NULL;
    }
    if (!(at = json_text(at, end, name))) return NULL;
    at = json_space(at, end);
    return at < end && *at == ':' ? json_space(at + 1, end) : NULL;
}

static const uint8_t *json_ext(const uint8_t *at, const uint8_t *end, struct rocketmq_frame *frame) {
    struct rocketmq_text name;
    const uint8_t *value, *behind = NULL;
    if (at == end || *at++ != '{') return NULL;
    while ((value = json_name(at, end, &name, &behind))) {
        if (frame->ext_count == EXT_COUNT_MAX) fail("more than %d fields in an answer", EXT_COUNT_MAX);
        struct rocketmq_field *field = &frame->ext[frame->ext_count++];
        field->name = name;
        if (!(at = json_scalar(value, end, &field->value))) return NULL;
    }
    return behind;
}

static bool is_name(struct rocketmq_text text, const char *name) { return text.size == strlen(name) && !memcmp(text.at, name, text.size); }

static void read_json(const uint8_t *at, const uint8_t *end, struct rocketmq_frame *frame) {
    const uint8_t *begin = at, *value, *behind = NULL;
    struct rocketmq_text name, scalar;
    bool has_code = false, has_opaque = false;
    at = json_space(at, end);
    if (at == end || *at++ != '{') no_header(begin, end);
    while ((value = json_name(at, end, &name, &behind))) {
        if (is_name(name, "extFields")) {
            if (!(at = json_ext(value, end, frame))) no_header(begin, end);
            continue;
        }
        if (!(at = json_scalar(value, end, &scalar))) no_header(begin, end);
        if (is_name(name, "code")) frame->code = (int32_t)rocketmq_number(scalar, "code"), has_code = true;
        else if (is_name(name, "opaque")) frame->opaque = (int32_t)rocketmq_number(scalar, "opaque"), has_opaque = true;
        else if (is_name(name, "flag")) frame->flag = (int32_t)rocketmq_number(scalar, "flag");
        else if (is_name(name, "remark")) frame->remark = scalar;
    }
    if (!behind || json_space(behind, end) != end || !has_code || !has_opaque) no_header(begin, end);
}

static void read_binary(const uint8_t *at, const uint8_t *end, struct rocketmq_frame *frame) {
    const uint8_t *begin = at;
    if (end - at < BINARY_FIXED_BYTES) no_header(at, end);
    frame->code = (int32_t)get_u16(at);
    frame->opaque = (int32_t)rocketmq_u32(at + 5);
    frame->flag = (int32_t)rocketmq_u32(at + 9);
    uint64_t remark_bytes = rocketmq_u32(at + 13);
    at += 17;
    if (remark_bytes + 4 > (uint64_t)(end - at)) no_header(begin, end);
    frame->remark = (struct rocketmq_text){at, remark_bytes};
    at += remark_bytes;
    if (rocketmq_u32(at) != (uint64_t)(end - at - 4)) no_header(begin, end);
    for (at += 4; at < end;) {
        if (frame->ext_count == EXT_COUNT_MAX) fail("more than %d fields in an answer", EXT_COUNT_MAX);
        struct rocketmq_field *field = &frame->ext[frame->ext_count++];
        if (end - at < 2 || (size_t)(end - at) < 2 + (size_t)get_u16(at) + 4) no_header(begin, end);
        field->name = (struct rocketmq_text){at + 2, get_u16(at)};
        at += 2 + field->name.size;
        field->value = (struct rocketmq_text){at + 4, rocketmq_u32(at)};
        at += 4;
        if (field->value.size > (size_t)(end - at)) no_header(begin, end);
        at += field->value.size;
    }
}

/* The next whole frame; false when there is none yet. It must be an answer: nothing is asked of one who has not said who it is. */
bool rocketmq_next(struct rocketmq_connection *connection, size_t *position, struct rocketmq_frame *frame) {
    const uint8_t *at = connection->base.input + *position;
    size_t left = connection->base.input_used - *position;
    if (left < PREFIX_BYTES) return false;
    size_t size = rocketmq_u32(at), header_size = rocketmq_u32(at + 4) & 0xFFFFFF, type = at[4];
    if (size < 4 + header_size || size > FRAME_BYTES_MAX || size + 4 > connection->base.input_room) fail("a frame of %zu bytes", size);
    if (left < 4 + size) return false;
    const uint8_t *body = at + PREFIX_BYTES + header_size;
    *frame = (struct rocketmq_frame){.body = {body, size - 4 - header_size}, .binary = type == 1};
    if (type > 1) fail("a header of type %zu", type);
    if (type) read_binary(at + PREFIX_BYTES, body, frame);
    else read_json(at + PREFIX_BYTES, body, frame);
    if (!(frame->flag & FLAG_ANSWER)) fail("a request of code %d came", frame->code);
    *position += 4 + size;
    return true;
}

uint64_t rocketmq_number(struct rocketmq_text text, const char *what) {
    uint64_t value = 0;
    for (size_t i = 0; i < text.size && i < 19; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') fail("%s is no number: %.*s", what, (int)(text.size < 100 ? text.size : 100), (const char *)text.at);
        value = value * 10 + (uint64_t)(text.at[i] - '0');
    }
    if (!text.size || text.size > 19) fail("%s has %zu digits", what, text.size);
    return value;
}

struct rocketmq_text rocketmq_ext(const struct rocketmq_frame *frame, const char *name) {
    for (uint32_t i = 0; i < frame->ext_count; i++)
        if (is_name(frame->ext[i].name, name)) return frame->ext[i].value;
    fail("an answer without %s", name);
}

_Noreturn void rocketmq_refused(const char *what, const struct rocketmq_frame *frame) {
    size_t size = frame->remark.size < 300 ? frame->remark.size : 300;
    fail("%s is answered by %d: %.*s", what, frame->code, (int)size, (const char *)frame->remark.at);
}
