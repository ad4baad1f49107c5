/* Compression of one connection.
 *
 * What publishers send is compressed in advance, each command by itself, so that it can be sent in any order and again
 * and again: deflate forgets what was before (a full flush), a snappy chunk never knew. What consumers send is wrapped
 * as it is, in stored blocks and chunks: the server has to take them apart, we do nothing for them.
 */
#include "loadgen.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    RAW_WINDOW_BITS = -15,
    /* Level 6 is what nsqd's and most clients' deflate is set to. */
    DEFLATE_LEVEL = 6,
    STORED_BLOCK_BYTES_MAX = 65535,
    STORED_HEAD_BYTES = 5,
    /* More than the largest chunk; and one read takes up to this much. */
    RECEIVED_ROOM_BYTES = 1 << 18,
};

static const uint8_t SNAPPY_IDENTIFIER[] = {0xFF, 6, 0, 0, 's', 'N', 'a', 'P', 'p', 'Y'};

struct packing {
    enum compression compression;
    z_stream inflater;
    uint8_t received[RECEIVED_ROOM_BYTES];
    size_t received_used;
    uint8_t *output;
    size_t output_sent, output_used, output_room;
};

size_t packed_size_max(size_t size_bytes) {
    return size_bytes + size_bytes / 6 + (size_bytes / SNAPPY_BLOCK_BYTES_MAX + 1) * 64 + sizeof SNAPPY_IDENTIFIER;
}

static size_t pack_deflate(uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    static z_stream deflater;
    static bool ready;
    if (!ready && deflateInit2(&deflater, DEFLATE_LEVEL, Z_DEFLATED, RAW_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) fail("deflate: no memory");
    ready = true;
    deflateReset(&deflater);
    deflater.next_in = (uint8_t *)(uintptr_t)plain;
    deflater.avail_in = (uInt)size_bytes;
    deflater.next_out = target;
    deflater.avail_out = (uInt)packed_size_max(size_bytes);
    if (deflate(&deflater, Z_FULL_FLUSH) != Z_OK || deflater.avail_in || !deflater.avail_out) fail("deflate: a command does not fit");
    return (size_t)(deflater.next_out - target);
}

/* Compress one piece so that it can be sent behind any other. `target` has room for `packed_size_max(size_bytes)`. */
size_t pack(enum compression compression, uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    if (compression == DEFLATE) return pack_deflate(target, plain, size_bytes);
    uint8_t *at = target;
    for (size_t done = 0; done < size_bytes;) {
        size_t count = size_bytes - done < SNAPPY_BLOCK_BYTES_MAX ? size_bytes - done : SNAPPY_BLOCK_BYTES_MAX;
        at += snappy_chunk(at, plain + done, count);
        done += count;
    }
    return (size_t)(at - target);
}

/* From here on both directions are compressed; `received` came behind the answer to IDENTIFY. */
struct packing *packing_start(enum compression compression, const uint8_t *received, size_t received_size_bytes) {
    struct packing *packing = allocate(sizeof *packing);
    packing->compression = compression;
    packing->received_used = packing->output_sent = packing->output_used = packing->output_room = 0;
    packing->output = NULL;
    memset(&packing->inflater, 0, sizeof packing->inflater);
    if (compression == DEFLATE && inflateInit2(&packing->inflater, RAW_WINDOW_BITS) != Z_OK) fail("inflate: no memory");
    if (received_size_bytes > RECEIVED_ROOM_BYTES) fail("too much behind the answer to IDENTIFY");
    memcpy(packing->received, received, received_size_bytes);
    packing->received_used = received_size_bytes;
    return packing;
}

/* What goes before all else that is sent. */
size_t pack_greeting(const struct packing *packing, uint8_t *target) {
    if (packing->compression != SNAPPY) return 0;
    memcpy(target, SNAPPY_IDENTIFIER, sizeof SNAPPY_IDENTIFIER);
    return sizeof SNAPPY_IDENTIFIER;
}

static size_t deflate_stored_block(uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    target[0] = 0; /* not the last block; stored; the rest of the byte is of no meaning */
    target[1] = (uint8_t)size_bytes;
    target[2] = (uint8_t)(size_bytes >> 8);
    target[3] = (uint8_t)~target[1];
    target[4] = (uint8_t)~target[2];
    memcpy(target + STORED_HEAD_BYTES, plain, size_bytes);
    return STORED_HEAD_BYTES + size_bytes;
}

/* `target` has room for `packed_size_max(size_bytes)`. An empty block ends it, as it ends every flush of a compressor:
 * Go's inflate hands nothing out before it. */
size_t pack_stored(struct packing *packing, uint8_t *target, const uint8_t *plain, size_t size_bytes) {
    size_t most = packing->compression == DEFLATE ? STORED_BLOCK_BYTES_MAX : SNAPPY_BLOCK_BYTES_MAX;
    uint8_t *at = target;
    for (size_t done = 0; done < size_bytes;) {
        size_t count = size_bytes - done < most ? size_bytes - done : most;
        at += packing->compression == DEFLATE ? deflate_stored_block(at, plain + done, count) : snappy_stored_chunk(at, plain + done, count);
        done += count;
    }
    if (packing->compression == DEFLATE) at += deflate_stored_block(at, plain, 0);
    return (size_t)(at - target);
}

/* Where the next read goes. */
uint8_t *unpack_room(struct packing *packing, size_t *room_bytes) {
    *room_bytes = RECEIVED_ROOM_BYTES - packing->received_used;
    return packing->received + packing->received_used;
}

void unpack_received(struct packing *packing, size_t size_bytes) {
    packing->received_used += size_bytes;
}

static void drop_received(struct packing *packing, size_t position) {
    memmove(packing->received, packing->received + position, packing->received_used - position);
    packing->received_used -= position;
}

static size_t inflate_received(struct packing *packing, uint8_t *target, size_t room_bytes) {
    z_stream *inflater = &packing->inflater;
    inflater->next_in = packing->received;
    inflater->avail_in = (uInt)packing->received_used;
    inflater->next_out = target;
    inflater->avail_out = (uInt)room_bytes;
    int result = inflate(inflater, Z_SYNC_FLUSH);
    /* Z_BUF_ERROR: there was nothing to do. */
    if (result != Z_OK && result != Z_BUF_ERROR) fail("inflate: %s", inflater->msg ? inflater->msg : "the stream ended");
    drop_received(packing, packing->received_used - inflater->avail_in);
    return room_bytes - inflater->avail_out;
}

static size_t unchunk_received(struct packing *packing, uint8_t *target, size_t room_bytes) {
    const uint8_t *received = packing->received;
    size_t position = 0, done = 0;
    while (packing->received_used - position >= 4) {
        size_t size = (size_t)received[position + 1] | (size_t)received[position + 2] << 8 | (size_t)received[position + 3] << 16;
        if (size + 4 > RECEIVED_ROOM_BYTES) fail("snappy: a chunk of %zu bytes", size);
        if (packing->received_used - position < size + 4) break;
        size_t count = snappy_unchunk(target + done, room_bytes - done, received + position, size + 4);
        if (count == SIZE_MAX) break;
        done += count;
        position += size + 4;
    }
    drop_received(packing, position);
    return done;
}

size_t unpack(struct packing *packing, uint8_t *target, size_t room_bytes) {
    return packing->compression == DEFLATE ? inflate_received(packing, target, room_bytes) : unchunk_received(packing, target, room_bytes);
}

/* Where `room_bytes` more may be packed. */
uint8_t *packed_output(struct packing *packing, size_t room_bytes) {
    if (packing->output_room - packing->output_used < room_bytes) {
        uint8_t *grown = allocate(packing->output_used + room_bytes);
        if (packing->output_used) memcpy(grown, packing->output, packing->output_used);
        free(packing->output);
        packing->output = grown;
        packing->output_room = packing->output_used + room_bytes;
    }
    return packing->output + packing->output_used;
}

void packed_add(struct packing *packing, size_t size_bytes) {
    packing->output_used += size_bytes;
}

const uint8_t *packed_waiting(const struct packing *packing, size_t *size_bytes) {
    *size_bytes = packing->output_used - packing->output_sent;
    return packing->output + packing->output_sent;
}

void packed_sent(struct packing *packing, size_t size_bytes) {
    packing->output_sent += size_bytes;
    if (packing->output_sent == packing->output_used) packing->output_sent = packing->output_used = 0;
}
