/* Steps of RMSprop in two passes over a piece of memory that stays in the cache: moments and what is under the root, then,
 * with the root taken, the weights. Torch has one kernel for Adam; for these formulas it needs an operation, and a pass
 * over weights and moments that fit into no cache, for every term.
 *
 * Products are added by fused multiply-add, as torch's own operations do, and the root is left to torch, whose own is not
 * rounded exactly everywhere: so both ways give the same bits, and the tests hold them together. A processor without the
 * instruction leaves all the work to torch. */
#include "_kernels.h"
#include <math.h>

#define MOST_ARRAYS 4

/* m <- m + (1 - momentum)(g - m)    v <- decay v + (1 - decay) g^2    root <- v - m^2 + eps */
FAST static void move_centered(const float *restrict grad, float *restrict mean, float *restrict square,
                               float *restrict root, Py_ssize_t count, float decay, float rest, float pull, float eps) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float g = grad[i];
        float m = fmaf(pull, g - mean[i], mean[i]);
        float v = fmaf(rest * g, g, square[i] * decay);
        mean[i] = m;
        square[i] = v;
        root[i] = fmaf(-m, m, v) + eps;
    }
}

/* v <- decay v + (1 - decay) g^2    root <- v + eps */
FAST static void move_plain(const float *restrict grad, float *restrict square, float *restrict root, Py_ssize_t count,
                            float decay, float rest, float eps) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float g = grad[i];
        float v = fmaf(rest * g, g, square[i] * decay);
        square[i] = v;
        root[i] = v + eps;
    }
}

/* w <- w - lr g / root */
FAST static void move_weights(const float *restrict grad, const float *restrict root, float *restrict weight,
                              Py_ssize_t count, float lr) {
    for (Py_ssize_t i = 0; i < count; i++) weight[i] += (-lr * grad[i]) / root[i];
}

/* Buffers of float32 of one size, the first one read only; -1 and an error where they are not. */
static Py_ssize_t hold(PyObject **object, Py_buffer *view, int arrays) {
    Py_ssize_t bytes = 0;
    for (int i = 0; i < arrays; i++) {
        int flags = i == 0 ? PyBUF_C_CONTIGUOUS : PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE;
        int failed = PyObject_GetBuffer(object[i], &view[i], flags);
        if (!failed && (view[i].itemsize != sizeof(float) || (i && view[i].len != bytes))) {
            PyErr_Format(PyExc_ValueError, "array %d is not float32 of the size of the first", i);
            PyBuffer_Release(&view[i]);
            failed = 1;
        }
        if (failed) {
            while (i--) PyBuffer_Release(&view[i]);
            return -1;
        }
        bytes = view[i].len;
    }
    return bytes / (Py_ssize_t)sizeof(float);
}

PyObject *centered(PyObject *self, PyObject *arguments) {
    PyObject *object[MOST_ARRAYS];
    Py_buffer view[MOST_ARRAYS];
    double decay, rest, pull, eps;
    if (!PyArg_ParseTuple(arguments, "OOOOdddd", &object[0], &object[1], &object[2], &object[3], &decay, &rest, &pull,
                          &eps))
        return NULL;
    Py_ssize_t count = hold(object, view, 4);
    if (count < 0) return NULL;
    move_centered(view[0].buf, view[1].buf, view[2].buf, view[3].buf, count, (float)decay, (float)rest, (float)pull,
                  (float)eps);
    for (int i = 0; i < 4; i++) PyBuffer_Release(&view[i]);
    Py_RETURN_NONE;
}

PyObject *plain(PyObject *self, PyObject *arguments) {
    PyObject *object[MOST_ARRAYS];
    Py_buffer view[MOST_ARRAYS];
    double decay, rest, eps;
    if (!PyArg_ParseTuple(arguments, "OOOddd", &object[0], &object[1], &object[2], &decay, &rest, &eps)) return NULL;
    Py_ssize_t count = hold(object, view, 3);
    if (count < 0) return NULL;
    move_plain(view[0].buf, view[1].buf, view[2].buf, count, (float)decay, (float)rest, (float)eps);
    for (int i = 0; i < 3; i++) PyBuffer_Release(&view[i]);
    Py_RETURN_NONE;
}

PyObject *descend(PyObject *self, PyObject *arguments) {
    PyObject *object[MOST_ARRAYS];
    Py_buffer view[MOST_ARRAYS];
    double lr;
    if (!PyArg_ParseTuple(arguments, "OOOd", &object[0], &object[1], &object[2], &lr)) return NULL;
    Py_ssize_t count = hold(object, view, 3);
    if (count < 0) return NULL;
    move_weights(view[0].buf, view[1].buf, view[2].buf, count, (float)lr);
    for (int i = 0; i < 3; i++) PyBuffer_Release(&view[i]);
    Py_RETURN_NONE;
}
