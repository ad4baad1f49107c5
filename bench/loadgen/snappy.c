/* Snappy: blocks, and the chunks of its framing format with their checksums.
 *
 * The compressor looks for what was there before by a table of the last place of each four bytes, as snappy's own does.
 * Source: format_description.txt and framing_format.txt of snappy.
 */
#include "loadgen.h"

#include <string.h>

enum {
    CHUNK_COMPRESSED = 0x00,
    CHUNK_STORED = 0x01,
    CHUNK_SKIPPED_FIRST = 0x80, /* from here on: padding, identifiers of the stream */
    HASH_BITS = 14,
    MATCH_BYTES_MIN = 4,
    COPY_BYTES_MAX = 64, /* of one copy element */
};

static uint32_t load_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, size_t size_bytes) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82F63B78u : 0);
        }
    while (size_bytes--) crc = crc >> 8 ^ table[(crc ^ *at++) & 0xFF];
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc_by_processor(uint32_t crc, const uint8_t *at, size_t size_bytes) {
    uint64_t wide = crc;
    for (; size_bytes >= 8; at += 8, size_bytes -= 8) {
        uint64_t value;
        memcpy(&value, at, sizeof value);
        wide = __builtin_ia32_crc32di(wide, value);
    }
    crc = (uint32_t)wide;
    while (size_bytes--) crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}
#endif

/* CRC-32C, turned and shifted as the framing format wants it. */
static uint32_t checksum(const uint8_t *at, size_t size_bytes) {
    uint32_t crc;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2")) crc = ~crc_by_processor(~0u, at, size_bytes);
    else
#endif
        crc = ~crc_by_table(~0u, at, size_bytes);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static uint8_t *put_literal(uint8_t *at, const uint8_t *plain, size_t size_bytes) {
    size_t value = size_bytes - 1;
    if (value < 60) {
        *at++ = (uint8_t)(value << 2);
    } else if (value < 256) {
        *at++ = 60 << 2;
        *at++ = (uint8_t)value;
    } else {
        *at++ = 61 << 2;
        *at++ = (uint8_t)value;
        *at++ = (uint8_t)(value >> 8);
    }
    memcpy(at, plain, size_bytes);
    return at + size_bytes;
}

/* Copies with an offset of two bytes; at most 64 bytes each. */
static uint8_t *put_copy(uint8_t *at, size_t distance, size_t size_bytes) {
    while (size_bytes) {
        size_t count = size_bytes < COPY_BYTES_MAX ? size_bytes : COPY_BYTES_MAX;
        *at++ = (uint8_t)((count - 1) << 2 | 2);
        *at++ = (uint8_t)distance;
        *at++ = (uint8_t)(distance >> 8);
        size_bytes -= count;
    }
    return at;
}

/* `target` has room for `size_bytes` and a sixth more, and 32 bytes. */
static size_t compress_block(uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    static uint16_t last[1 << HASH_BITS];
    uint8_t *at = target;
    size_t position = 0, literal_from = 0;
    memset(last, 0, sizeof last);
    size_t digits = size_bytes;
    for (; digits >= 0x80; digits >>= 7) *at++ = (uint8_t)(digits | 0x80);
    *at++ = (uint8_t)digits;
    while (position + MATCH_BYTES_MIN <= size_bytes) {
        uint32_t four = load_u32(plain + position);
        uint16_t *place = &last[four * 0x1E35A7BDu >> (32 - HASH_BITS)];
        size_t before = *place;
        *place = (uint16_t)position;
        if (before >= position || load_u32(plain + before) != four) {
            position++;
            continue;
        }
        size_t length = MATCH_BYTES_MIN;
        while (position + length < size_bytes && plain[before + length] == plain[position + length]) length++;
        if (position > literal_from) at = put_literal(at, plain + literal_from, position - literal_from);
        at = put_copy(at, position - before, length);
        position += length;
        literal_from = position;
    }
    if (size_bytes > literal_from) at = put_literal(at, plain + literal_from, size_bytes - literal_from);
    return (size_t)(at - target);
}

static size_t uncompress_block(uint8_t *target, size_t room_bytes, const uint8_t *at, const uint8_t *end) {
    size_t size = 0, done = 0;
    for (int shift = 0;; shift += 7) {
        if (at == end || shift > 28) fail("snappy: no size");
        size |= (size_t)(*at & 0x7F) << shift;
        if (*at++ < 0x80) break;
    }
    if (size > SNAPPY_BLOCK_BYTES_MAX) fail("snappy: a block of %zu bytes", size);
    if (size > room_bytes) return SIZE_MAX;
    while (at < end) {
        uint8_t tag = *at++;
        size_t length = (size_t)(tag >> 2) + 1, distance, extra = (size_t)(tag & 3);
        if (!extra) {
            size_t width = length > 60 ? length - 60 : 0;
            if ((size_t)(end - at) < width || width > 2) fail("snappy: a bad literal");
            if (width) length = (size_t)at[0] + (width == 2 ? (size_t)at[1] << 8 : 0) + 1;
            at += width;
            if ((size_t)(end - at) < length || size - done < length) fail("snappy: a literal that is too long");
            memcpy(target + done, at, length);
            at += length;
            done += length;
            continue;
        }
        if (extra == 3) extra = 4;
        if ((size_t)(end - at) < extra) fail("snappy: a copy without its offset");
        distance = extra == 1 ? (size_t)(tag >> 5) << 8 | at[0] : extra == 2 ? (size_t)at[0] | (size_t)at[1] << 8 : load_u32(at);
        if (extra == 1) length = (size_t)(tag >> 2 & 7) + 4;
        at += extra;
        if (!distance || distance > done || size - done < length) fail("snappy: a bad copy");
        if (distance >= length) memcpy(target + done, target + done - distance, length);
        else
            for (size_t i = 0; i < length; i++) target[done + i] = target[done + i - distance];
        done += length;
    }
    if (done != size) fail("snappy: a block of %zu bytes says %zu", done, size);
    return size;
}

static void put_chunk_head(uint8_t *target, uint8_t kind, size_t data_bytes, uint32_t sum) {
    size_t size = data_bytes + 4;
    target[0] = kind;
    for (int i = 0; i < 3; i++) target[1 + i] = (uint8_t)(size >> 8 * i);
    for (int i = 0; i < 4; i++) target[4 + i] = (uint8_t)(sum >> 8 * i);
}

size_t snappy_chunk(uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    size_t data = compress_block(target + SNAPPY_CHUNK_HEAD_BYTES, plain, size_bytes);
    if (data >= size_bytes) return snappy_stored_chunk(target, plain, size_bytes);
    put_chunk_head(target, CHUNK_COMPRESSED, data, checksum(plain, size_bytes));
    return SNAPPY_CHUNK_HEAD_BYTES + data;
}

size_t snappy_stored_chunk(uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    memcpy(target + SNAPPY_CHUNK_HEAD_BYTES, plain, size_bytes);
    put_chunk_head(target, CHUNK_STORED, size_bytes, checksum(plain, size_bytes));
    return SNAPPY_CHUNK_HEAD_BYTES + size_bytes;
}

/* What a whole chunk contains; SIZE_MAX when `target` has no room for it. */
size_t snappy_unchunk(uint8_t *target, size_t room_bytes, const uint8_t *chunk, size_t chunk_bytes) {
    size_t size;
    if (chunk[0] >= CHUNK_SKIPPED_FIRST) return 0;
    if (chunk[0] > CHUNK_STORED || chunk_bytes < SNAPPY_CHUNK_HEAD_BYTES) fail("snappy: a chunk of type %u and %zu bytes", chunk[0], chunk_bytes);
    const uint8_t *data = chunk + SNAPPY_CHUNK_HEAD_BYTES;
    if (chunk[0] == CHUNK_STORED) {
        size = chunk_bytes - SNAPPY_CHUNK_HEAD_BYTES;
        if (size > room_bytes) return SIZE_MAX;
        memcpy(target, data, size);
    } else {
        size = uncompress_block(target, room_bytes, data, chunk + chunk_bytes);
        if (size == SIZE_MAX) return size;
    }
    if (checksum(target, size) != load_u32(chunk + 4)) fail("snappy: a wrong checksum");
    return size;
}
