/* Steps in a ring: where they lie, which can still be sampled, their n-step windows and the slots of their stacks. */
#include "_kernels.h"

#include <float.h>

/* claim(index, priority, valid, written, block, slots_per_row, slot, value) -> count: of the sampled steps `index` those
 * that can still be sampled: their slots and the sizes of their priorities. -1 when a priority is not finite. */
PyObject *claim(PyObject *self, PyObject *args) {
    PyObject *objects[6];
    Held held[6] = {{.held = 0}};
    Py_ssize_t block, per_row, found = 0;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OOOOnnOO", &objects[0], &objects[1], &objects[2], &objects[3], &block, &per_row,
                          &objects[4], &objects[5]))
        return NULL;
    if (!hold(objects[0], &held[0], 0, 8, "index") || !hold(objects[1], &held[1], 0, 4, "priority") ||
        !hold(objects[2], &held[2], 0, 1, "valid") || !hold(objects[3], &held[3], 0, 8, "written") ||
        !hold(objects[4], &held[4], 1, 8, "slot") || !hold(objects[5], &held[5], 1, 8, "value"))
        goto end;
    const int64_t *index = held[0].view.buf, *written = held[3].view.buf;
    const float *priority = held[1].view.buf;
    const uint8_t *valid = held[2].view.buf;
    int64_t *slot = held[4].view.buf;
    double *value = held[5].view.buf;
    Py_ssize_t count = held[0].view.len / 8, rows = held[3].view.len / 8;
    if (rows < 1 || block < 1 || per_row < 1 || held[1].view.len / 4 != count || held[2].view.len != rows * per_row ||
        held[4].view.len / 8 != count || held[5].view.len / 8 != count) {
        PyErr_SetString(PyExc_ValueError, "the arrays differ in length");
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (index[i] < 0) {
            PyErr_Format(PyExc_IndexError, "there is no step %lld", (long long)index[i]);
            goto end;
        }
        double size = priority[i] < 0 ? -(double)priority[i] : (double)priority[i];
        if (!(size <= FLT_MAX)) {
            found = -1;
            break;
        }
        int64_t row = index[i] % rows, position = index[i] / rows, place = row * per_row + position % per_row;
        int64_t end = block == 1 ? written[row] : (written[row] + block - 1) / block * block;
        slot[found] = place;
        value[found] = size;
        /* no branch, and nothing read through `found`: the marks are fetched while others are waited for */
        found += (valid[place] != 0) & (position >= end - per_row);
    }
    result = PyLong_FromSsize_t(found);
end:
    release(held, 6);
    return result;
}

/* What a reader asks of a ring: its arrays, the windows' form, and the slots they start in */
typedef struct {
    const uint8_t *flags, *since;
    const float *reward;
    const double *powers;
    const int64_t *written, *start;
    Py_ssize_t per_row, rows, stack, most, count;
    int cut, terminated;
} Windows;

/* Looks at every slot before its neighbours are read, and has them fetched meanwhile */
static int check_windows(const Windows *w, const Held *held) {
    Py_ssize_t slots = held[0].view.len;
    if (w->per_row < 1 || slots != w->rows * w->per_row || held[1].view.len != slots ||
        held[2].view.len / 4 != slots || w->most < 1 || w->stack < 1 || w->stack > w->per_row ||
        held[6].view.len / 8 != w->count || held[7].view.len / 4 != w->count || held[8].view.len / 4 != w->count ||
        held[9].view.len / 8 != w->count * 2 * w->stack) {
        PyErr_SetString(PyExc_ValueError, "the arrays differ in length");
        return 0;
    }
    for (Py_ssize_t i = 0; i < w->count; i++) {
        if (w->start[i] < 0 || w->start[i] >= slots) {
            PyErr_Format(PyExc_IndexError, "slot %lld lies outside of %zd", (long long)w->start[i], slots);
            return 0;
        }
        PREFETCH(w->flags + w->start[i]);
        PREFETCH(w->since + w->start[i]);
        PREFETCH(w->reward + w->start[i]);
    }
    return 1;
}

/* Return and discount of a window, summed in float64 in the order of time; its length and the place behind it */
static void add_up(const Windows *w, int64_t base, int64_t offset, float *sum, float *discount, int64_t *length,
                   int64_t *after) {
    const float first = w->reward[base + offset];
    double total = 0;
    Py_ssize_t steps = 0;
    uint8_t last;
    do {
        total += w->reward[base + offset] * w->powers[steps];
        last = w->flags[base + offset];
        if (++offset == w->per_row) offset = 0;
        steps++;
    } while (steps < w->most && !(last & w->cut));
    /* a sum begins with 0, which turns -0 into 0; a single reward stays as it is */
    *sum = w->most == 1 ? first : (float)total;
    *discount = last & w->terminated ? 0 : (float)w->powers[steps];
    *length = steps;
    *after = offset;
}

/* The slots of so many frames from the oldest place of a step's stack on, -1 before its game's first frame */
static void stack_at(const Windows *w, int64_t base, int64_t offset, Py_ssize_t frames, int64_t *out) {
    Py_ssize_t missing = w->stack - 1 - w->since[base + offset];
    offset -= w->stack - 1;
    if (offset < 0) offset += w->per_row;
    for (Py_ssize_t k = 0; k < frames; k++) {
        out[k] = k < missing ? -1 : base + offset;
        if (++offset == w->per_row) offset = 0;
    }
}

/* Index, return and discount of every window; the shift. Lengths and ends wait where the slots will go. */
static int64_t measure(const Windows *w, int64_t *index, float *reward, float *discount, int64_t *out) {
    int64_t shift = 0;
    for (Py_ssize_t i = 0; i < w->count; i++, out += 2 * w->stack) {
        int64_t row = w->start[i] / w->per_row, base = row * w->per_row, offset = w->start[i] - base;
        int64_t newest = w->written[row] - 1, behind = newest % w->per_row - offset;
        index[i] = (newest - (behind < 0 ? behind + w->per_row : behind)) * w->rows + row;
        add_up(w, base, offset, reward + i, discount + i, out, out + 1);
        if (i == 0) shift = out[0] < w->stack ? out[0] : 0;
        if (out[0] != shift) shift = 0;
    }
    return shift;
}

/* windows(flags, since, reward, powers, written, start, slots_per_row, stack, cut, terminated, index_out, reward_out,
 * discount_out, slot_out) -> shift: the windows that start in the given slots, and the slots of the stacks at their starts
 * and behind them. Where all windows are of one length and the two stacks overlap, one run of stack + shift slots holds
 * both; otherwise shift is 0 and they lie behind one another. slot_out has room for the longer form. */
PyObject *windows(PyObject *self, PyObject *args) {
    static const struct {
        const char *name;
        int writable, itemsize;
    } arrays[10] = {{"flags", 0, 1},   {"since", 0, 1}, {"reward", 0, 4},    {"powers", 0, 8},     {"written", 0, 8},
                    {"start", 0, 8},   {"index", 1, 8}, {"reward_out", 1, 4}, {"discount", 1, 4}, {"slot", 1, 8}};
    PyObject *objects[10], *result = NULL;
    Held held[10] = {{.held = 0}};
    Windows w;
    if (!PyArg_ParseTuple(args, "OOOOOOnniiOOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &objects[5], &w.per_row, &w.stack, &w.cut, &w.terminated, &objects[6], &objects[7],
                          &objects[8], &objects[9]))
        return NULL;
    for (int k = 0; k < 10; k++)
        if (!hold(objects[k], &held[k], arrays[k].writable, arrays[k].itemsize, arrays[k].name)) goto end;
    w.flags = held[0].view.buf, w.since = held[1].view.buf, w.reward = held[2].view.buf, w.powers = held[3].view.buf;
    w.written = held[4].view.buf, w.start = held[5].view.buf;
    w.most = held[3].view.len / 8 - 1, w.rows = held[4].view.len / 8, w.count = held[5].view.len / 8;
    if (!check_windows(&w, held)) goto end;
    int64_t *out = held[9].view.buf;
    int64_t shift = measure(&w, held[6].view.buf, held[7].view.buf, held[8].view.buf, out);
    for (Py_ssize_t i = 0; i < w.count; i++, out += w.stack + (shift ? shift : w.stack)) {
        int64_t base = w.start[i] / w.per_row * w.per_row, after = out[1];
        stack_at(&w, base, w.start[i] - base, w.stack + shift, out);
        if (!shift) stack_at(&w, base, after, w.stack, out + w.stack);
    }
    result = PyLong_FromLongLong(shift);
end:
    release(held, 10);
    return result;
}
