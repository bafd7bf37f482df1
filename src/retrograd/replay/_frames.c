/* Frames: copying them by slot, and coding short runs of them by what differs. */
#include "_kernels.h"

/* A processor fetches ahead within a page only: asking for the next pages' first lines hides the wait for them. */
enum { PAGE_BYTES = 4096, FRAMES_AHEAD = 3 };

/* gather(frames, frame_count, slot, out) */
PyObject *gather(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    Py_ssize_t frame_count;
    Held held[3] = {{.held = 0}};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OnOO", &objects[0], &frame_count, &objects[1], &objects[2])) return NULL;
    if (!hold(objects[0], &held[0], 0, 0, "frames") || !hold(objects[1], &held[1], 0, 8, "slot") ||
        !hold(objects[2], &held[2], 1, 0, "out"))
        goto end;
    const char *frames = held[0].view.buf;
    const int64_t *slot = held[1].view.buf;
    char *out = held[2].view.buf;
    Py_ssize_t count = held[1].view.len / 8, size = frame_count ? held[0].view.len / frame_count : 0;
    if (held[2].view.len != count * size) {
        PyErr_SetString(PyExc_ValueError, "out has not the size of the frames asked for");
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (slot[i] >= frame_count) {
            PyErr_Format(PyExc_IndexError, "slot %lld lies outside of %zd frames", (long long)slot[i], frame_count);
            goto end;
        }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) {
        if (i + FRAMES_AHEAD < count && slot[i + FRAMES_AHEAD] >= 0)
            for (Py_ssize_t k = 0; k < size; k += PAGE_BYTES) PREFETCH(frames + slot[i + FRAMES_AHEAD] * size + k);
        if (slot[i] < 0)
            memset(out + i * size, 0, (size_t)size);
        else
            memcpy(out + i * size, frames + slot[i] * size, (size_t)size);
    }
    Py_END_ALLOW_THREADS
    result = Py_None;
    Py_INCREF(result);
end:
    release(held, 3);
    return result;
}

/* One coded frame: uint32 tokens, then their skips (bytes), their lengths (bytes), and the literals.
 * A literal is the byte XOR its predecessor: the line above in a block's first frame, the frame before in the others. */
enum { GAP = 3, MOST = 255 };

static Py_ssize_t encode_frame(const uint8_t *rest, Py_ssize_t size, uint8_t *out, uint8_t *skips, uint8_t *lengths,
                               uint8_t *literals) {
    Py_ssize_t tokens = 0, written = 0, done = 0, at = 0;
    for (;;) {
        uint64_t word;
        while (at + 8 <= size && (memcpy(&word, rest + at, 8), word == 0)) at += 8;
        while (at < size && rest[at] == 0) at++;
        if (at == size) break;
        Py_ssize_t start = at, end = at + 1;
        for (at = end; at < size && at - end < GAP; at++)
            if (rest[at]) end = at + 1;
        at = end;
        Py_ssize_t skip = start - done, length = end - start;
        memcpy(literals + written, rest + start, (size_t)length);
        written += length;
        done = end;
        for (; skip > MOST; skip -= MOST) skips[tokens] = MOST, lengths[tokens++] = 0;
        for (; length > MOST; length -= MOST, skip = 0) skips[tokens] = (uint8_t)skip, lengths[tokens++] = MOST;
        skips[tokens] = (uint8_t)skip, lengths[tokens++] = (uint8_t)length;
    }
    uint32_t header = (uint32_t)tokens;
    memcpy(out, &header, 4);
    memcpy(out + 4, skips, (size_t)tokens);
    memcpy(out + 4 + tokens, lengths, (size_t)tokens);
    memcpy(out + 4 + 2 * tokens, literals, (size_t)written);
    return 4 + 2 * tokens + written;
}

/* encode(block, frame_bytes, line_bytes) -> bytes */
PyObject *encode(PyObject *self, PyObject *args) {
    PyObject *object;
    Py_ssize_t size, line;
    Held held = {.held = 0};
    PyObject *result = NULL;
    uint8_t *space = NULL;
    if (!PyArg_ParseTuple(args, "Onn", &object, &size, &line)) return NULL;
    if (!hold(object, &held, 0, 1, "block")) goto end;
    if (size < 1 || line < 1 || held.view.len % size) {
        PyErr_SetString(PyExc_ValueError, "the block is not made of whole frames");
        goto end;
    }
    const uint8_t *frame = held.view.buf;
    Py_ssize_t count = held.view.len / size, most = 4 + 3 * size + 16, used = 0;
    space = malloc((size_t)(count * most + 4 * size + 64));
    if (!space) {
        PyErr_NoMemory();
        goto end;
    }
    uint8_t *rest = space + count * most, *skips = rest + size, *lengths = skips + size + 16, *literals = lengths + size + 16;
    for (Py_ssize_t k = 0; k < count; k++, frame += size) {
        if (k == 0) {
            for (Py_ssize_t i = 0; i < size; i++) rest[i] = i < line ? frame[i] : frame[i] ^ frame[i - line];
        } else
            for (Py_ssize_t i = 0; i < size; i++) rest[i] = frame[i] ^ frame[i - size];
        used += encode_frame(rest, size, space + used, skips, lengths, literals);
    }
    result = PyBytes_FromStringAndSize((const char *)space, used);
end:
    free(space);
    release(&held, 1);
    return result;
}

/* XOR with the first `length` bytes of a literal. Most are short: eight bytes at once, the surplus masked out, take no
 * branch that could be guessed wrong. A frame has WORD bytes to spare behind it; a literal has where it does not end. */
enum { WORD = 8 };

static void apply(uint8_t *frame, const uint8_t *literal, Py_ssize_t length, const uint8_t *end) {
    static const uint8_t mask[2 * WORD] = {255, 255, 255, 255, 255, 255, 255, 255};
    if (length <= WORD && end - literal >= WORD) {
        uint64_t before, change, kept;
        memcpy(&before, frame, WORD);
        memcpy(&change, literal, WORD);
        memcpy(&kept, mask + WORD - length, WORD);
        before ^= change & kept;
        memcpy(frame, &before, WORD);
    } else
        for (Py_ssize_t i = 0; i < length; i++) frame[i] ^= literal[i];
}

/* Turns the frame before into the next one; where the code goes on, or NULL when it is broken */
static const uint8_t *decode_frame(const uint8_t *code, const uint8_t *end, uint8_t *frame, Py_ssize_t size) {
    uint32_t tokens;
    if (end - code < 4) return NULL;
    memcpy(&tokens, code, 4);
    code += 4;
    if ((end - code) / 2 < (Py_ssize_t)tokens) return NULL;
    const uint8_t *skips = code, *lengths = code + tokens, *literal = code + 2 * (Py_ssize_t)tokens;
    Py_ssize_t at = 0;
    for (uint32_t t = 0; t < tokens; t++) {
        at += skips[t];
        Py_ssize_t length = lengths[t];
        if (at + length > size || length > end - literal) return NULL;
        apply(frame + at, literal, length, end);
        at += length;
        literal += length;
    }
    return literal;
}

/* Undoes the XOR with the line above. Line by line, as a compiler cannot see that a line does not overlap the next. */
static void add_lines(uint8_t *frame, Py_ssize_t size, Py_ssize_t line) {
    for (Py_ssize_t first = line; first < size; first += line) {
        uint8_t *restrict below = frame + first;
        const uint8_t *restrict above = below - line;
        Py_ssize_t width = size - first < line ? size - first : line;
        for (Py_ssize_t j = 0; j < width; j++) below[j] ^= above[j];
    }
}

/* decode(blocks, open, slot, out, block_frames, blocks_per_row, line_bytes): blocks is a list of bytes, None for the
 * block that a row is writing, whose frames lie in open as they are. Slots in order of time cost least. */
PyObject *decode(PyObject *self, PyObject *args) {
    PyObject *blocks, *objects[3];
    Py_ssize_t per_block, per_row, line;
    Held held[3] = {{.held = 0}};
    PyObject *result = NULL;
    uint8_t *frame = NULL;
    if (!PyArg_ParseTuple(args, "OOOOnnn", &blocks, &objects[0], &objects[1], &objects[2], &per_block, &per_row, &line))
        return NULL;
    if (!hold(objects[0], &held[0], 0, 1, "open") || !hold(objects[1], &held[1], 0, 8, "slot") ||
        !hold(objects[2], &held[2], 1, 1, "out"))
        goto end;
    const uint8_t *open = held[0].view.buf, *code = NULL, *code_end = NULL;
    const int64_t *slot = held[1].view.buf;
    uint8_t *out = held[2].view.buf;
    Py_ssize_t count = held[1].view.len / 8, size = count ? held[2].view.len / count : 0;
    int64_t block = -1, at = 0;
    frame = malloc((size_t)size + WORD);
    if (!frame) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++, out += size) {
        if (slot[i] < 0) {
            memset(out, 0, (size_t)size);
            continue;
        }
        int64_t wanted = slot[i] / per_block, offset = slot[i] % per_block;
        PyObject *coded = PyList_GetItem(blocks, (Py_ssize_t)wanted);
        if (!coded) goto end;
        if (coded == Py_None) {
            int64_t first = wanted / per_row * per_block + offset;
            if ((first + 1) * size > held[0].view.len) {
                PyErr_SetString(PyExc_IndexError, "slot outside of the open blocks");
                goto end;
            }
            memcpy(out, open + first * size, (size_t)size);
            continue;
        }
        if (wanted != block || offset < at - 1) {
            Py_ssize_t length = PyBytes_Size(coded);
            if (length < 0) goto end;
            code = (const uint8_t *)PyBytes_AsString(coded);
            code_end = code + length;
            block = wanted;
            at = 0;
        }
        for (; at <= offset; at++) {
            if (at == 0) memset(frame, 0, (size_t)size);
            code = decode_frame(code, code_end, frame, size);
            if (!code) {
                PyErr_SetString(PyExc_ValueError, "a compressed block is broken");
                goto end;
            }
            if (at == 0) add_lines(frame, size, line);
        }
        memcpy(out, frame, (size_t)size);
    }
    result = Py_None;
    Py_INCREF(result);
end:
    free(frame);
    release(held, 3);
    return result;
}
