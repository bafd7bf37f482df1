/* Steps in a ring: where they lie, which can still be sampled, their n-step windows and the slots of their stacks. */
#include "_kernels.h"

#include <float.h>

/* locate(slot, written, slots_per_row, row, position): what the slots hold now, by row and absolute position */
PyObject *locate(PyObject *self, PyObject *args) {
    PyObject *objects[4];
    Held held[4] = {{.held = 0}};
    Py_ssize_t per_row;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OOnOO", &objects[0], &objects[1], &per_row, &objects[2], &objects[3])) return NULL;
    if (!hold(objects[0], &held[0], 0, 8, "slot") || !hold(objects[1], &held[1], 0, 8, "written") ||
        !hold(objects[2], &held[2], 1, 8, "row") || !hold(objects[3], &held[3], 1, 8, "position"))
        goto end;
    const int64_t *slot = held[0].view.buf, *written = held[1].view.buf;
    int64_t *row = held[2].view.buf, *position = held[3].view.buf;
    Py_ssize_t count = held[0].view.len / 8, rows = held[1].view.len / 8;
    if (per_row < 1 || held[2].view.len / 8 != count || held[3].view.len / 8 != count) {
        PyErr_SetString(PyExc_ValueError, "the arrays differ in length");
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (slot[i] < 0 || slot[i] / per_row >= rows) {
            PyErr_Format(PyExc_IndexError, "slot %lld lies outside of %zd rows", (long long)slot[i], rows);
            goto end;
        }
        row[i] = slot[i] / per_row;
        int64_t newest = written[row[i]] - 1, behind = (newest - slot[i]) % per_row;
        position[i] = newest - (behind < 0 ? behind + per_row : behind);
    }
    result = Py_None;
    Py_INCREF(result);
end:
    release(held, 4);
    return result;
}

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
        int64_t row = index[i] % rows, position = index[i] / rows;
        int64_t oldest = (written[row] + block - 1) / block * block - per_row;
        slot[found] = row * per_row + position % per_row;
        value[found] = size;
        found += valid[slot[found]] && position >= oldest;
    }
    result = PyLong_FromSsize_t(found);
end:
    release(held, 6);
    return result;
}

/* What a reader knows of a ring: two arrays of its slots, and steps given by row and absolute position. */
typedef struct {
    Py_ssize_t slots, per_row, count;
    const int64_t *row, *position;
} Steps;

static int take_steps(Steps *steps, const Held *row, const Held *position) {
    steps->count = row->view.len / 8;
    steps->row = row->view.buf;
    steps->position = position->view.buf;
    if (position->view.len / 8 != steps->count || steps->per_row < 1) {
        PyErr_SetString(PyExc_ValueError, "row and position differ in length");
        return 0;
    }
    for (Py_ssize_t i = 0; i < steps->count; i++)
        if (steps->row[i] < 0 || steps->row[i] >= steps->slots / steps->per_row || steps->position[i] < 0) {
            PyErr_Format(PyExc_IndexError, "there is no step %lld of row %lld", (long long)steps->position[i],
                         (long long)steps->row[i]);
            return 0;
        }
    return 1;
}

/* windows(flags, reward, powers, row, position, slots_per_row, cut, terminated, reward_out, discount_out, length_out):
 * sums in float64 in the order of time */
PyObject *windows(PyObject *self, PyObject *args) {
    PyObject *objects[8];
    Held held[8] = {{.held = 0}};
    Steps steps;
    int cut, terminated;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OOOOOniiOOO", &objects[0], &objects[1], &objects[2], &objects[3], &objects[4],
                          &steps.per_row, &cut, &terminated, &objects[5], &objects[6], &objects[7]))
        return NULL;
    if (!hold(objects[0], &held[0], 0, 1, "flags") || !hold(objects[1], &held[1], 0, 4, "reward") ||
        !hold(objects[2], &held[2], 0, 8, "powers") || !hold(objects[3], &held[3], 0, 8, "row") ||
        !hold(objects[4], &held[4], 0, 8, "position") || !hold(objects[5], &held[5], 1, 4, "reward_out") ||
        !hold(objects[6], &held[6], 1, 4, "discount_out") || !hold(objects[7], &held[7], 1, 8, "length_out"))
        goto end;
    const uint8_t *flags = held[0].view.buf;
    const float *reward = held[1].view.buf;
    const double *powers = held[2].view.buf;
    float *reward_out = held[5].view.buf, *discount_out = held[6].view.buf;
    int64_t *length_out = held[7].view.buf;
    Py_ssize_t most = held[2].view.len / 8 - 1;
    steps.slots = held[0].view.len;
    if (!take_steps(&steps, &held[3], &held[4])) goto end;
    if (held[1].view.len / 4 != steps.slots || held[5].view.len / 4 != steps.count || most < 1 ||
        held[6].view.len / 4 != steps.count || held[7].view.len / 8 != steps.count) {
        PyErr_SetString(PyExc_ValueError, "the arrays differ in length");
        goto end;
    }
    for (Py_ssize_t i = 0; i < steps.count; i++) {
        int64_t base = steps.row[i] * steps.per_row, offset = steps.position[i] % steps.per_row;
        Py_ssize_t length = 0;
        double total = 0;
        uint8_t last;
        do {
            total += reward[base + offset] * powers[length];
            last = flags[base + offset];
            if (++offset == steps.per_row) offset = 0;
            length++;
        } while (length < most && !(last & cut));
        /* a sum begins with 0, which turns -0 into 0; a single reward stays as it is */
        reward_out[i] = most == 1 ? reward[base + steps.position[i] % steps.per_row] : (float)total;
        discount_out[i] = last & terminated ? 0 : (float)powers[length];
        length_out[i] = length;
    }
    result = Py_None;
    Py_INCREF(result);
end:
    release(held, 8);
    return result;
}

static void stack_at(const Steps *steps, const uint8_t *since, Py_ssize_t i, int64_t position, Py_ssize_t stack,
                     Py_ssize_t frames, int64_t *out) {
    int64_t base = steps->row[i] * steps->per_row;
    int64_t age = since[base + position % steps->per_row], first = position - (age < stack - 1 ? age : stack - 1);
    for (Py_ssize_t k = 0; k < frames; k++) {
        int64_t wanted = position - (stack - 1) + k;
        out[k] = wanted < first ? -1 : base + wanted % steps->per_row;
    }
}

/* stacks(since, row, position, length, slots_per_row, stack, out) -> shift: the slots of each step's stack and of the
 * stack `length` steps on. Where all lengths are alike and the two overlap, one run of stack + shift slots holds both;
 * otherwise shift is 0 and they lie behind one another. out has room for the longer form. */
PyObject *stacks(PyObject *self, PyObject *args) {
    PyObject *objects[5];
    Held held[5] = {{.held = 0}};
    Steps steps;
    Py_ssize_t stack;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OOOOnnO", &objects[0], &objects[1], &objects[2], &objects[3], &steps.per_row, &stack,
                          &objects[4]))
        return NULL;
    if (!hold(objects[0], &held[0], 0, 1, "since") || !hold(objects[1], &held[1], 0, 8, "row") ||
        !hold(objects[2], &held[2], 0, 8, "position") || !hold(objects[3], &held[3], 0, 8, "length") ||
        !hold(objects[4], &held[4], 1, 8, "out"))
        goto end;
    const uint8_t *since = held[0].view.buf;
    const int64_t *length = held[3].view.buf;
    int64_t *out = held[4].view.buf;
    steps.slots = held[0].view.len;
    if (!take_steps(&steps, &held[1], &held[2])) goto end;
    if (held[3].view.len / 8 != steps.count || stack < 1 || held[4].view.len / 8 != steps.count * 2 * stack) {
        PyErr_SetString(PyExc_ValueError, "the arrays differ in length");
        goto end;
    }
    int64_t shift = steps.count && length[0] < stack ? length[0] : 0;
    for (Py_ssize_t i = 0; i < steps.count; i++) {
        if (length[i] < 1) {
            PyErr_SetString(PyExc_ValueError, "a window has no step");
            goto end;
        }
        if (length[i] != shift) shift = 0;
    }
    for (Py_ssize_t i = 0; i < steps.count; i++) {
        if (shift) {
            stack_at(&steps, since, i, steps.position[i], stack, stack + shift, out);
            out += stack + shift;
        } else {
            stack_at(&steps, since, i, steps.position[i], stack, stack, out);
            stack_at(&steps, since, i, steps.position[i] + length[i], stack, stack, out + stack);
            out += 2 * stack;
        }
    }
    result = PyLong_FromLongLong(shift);
end:
    release(held, 5);
    return result;
}
