/* A sum tree in one array of doubles, in batches: node i has the children 2i and 2i + 1. */
#include "_kernels.h"

static int in_range(const int64_t *index, Py_ssize_t count, int64_t end) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= end) {
            PyErr_Format(PyExc_IndexError, "leaf %lld lies outside of [0, %lld)", (long long)index[i], (long long)end);
            return 0;
        }
    return 1;
}

/* set(tree, index, value, capacity): leaves first, then every parent anew as left + right, one level after the other */
PyObject *tree_set(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    Held held[3] = {{.held = 0}};
    int64_t *node = NULL;
    PyObject *result = NULL;
    Py_ssize_t capacity;
    if (!PyArg_ParseTuple(args, "OOOn", &objects[0], &objects[1], &objects[2], &capacity)) return NULL;
    if (!hold(objects[0], &held[0], 1, 8, "tree") || !hold(objects[1], &held[1], 0, 8, "index") ||
        !hold(objects[2], &held[2], 0, 8, "value"))
        goto end;
    double *tree = held[0].view.buf;
    const int64_t *index = held[1].view.buf;
    const double *value = held[2].view.buf;
    Py_ssize_t leaves = held[0].view.len / 16, count = held[1].view.len / 8;
    if (held[2].view.len / 8 != count) {
        PyErr_SetString(PyExc_ValueError, "index and value differ in length");
        goto end;
    }
    if (capacity > leaves) capacity = leaves;
    if (!in_range(index, count, capacity)) goto end;
    node = malloc((size_t)(count ? count : 1) * sizeof *node);
    if (!node) {
        PyErr_NoMemory();
        goto end;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        tree[leaves + index[i]] = value[i];
        node[i] = (leaves + index[i]) >> 1;
    }
    while (count && node[0] > 0) {
        Py_ssize_t kept = 0;
        int64_t last = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t n = node[i];
            if (n == last) continue;
            last = n;
            tree[n] = tree[2 * n] + tree[2 * n + 1];
            node[kept++] = n >> 1;
        }
        count = kept;
    }
    result = Py_None;
    Py_INCREF(result);
end:
    free(node);
    release(held, 3);
    return result;
}

/* Every walk ends at the leaf in which its mass lies; mass is used up. All go down together: while the others take a
 * step, the next nodes of each are fetched. */
static void descend(const double *tree, Py_ssize_t leaves, double *mass, int64_t *node, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) node[i] = 1;
    for (Py_ssize_t level = 1; level < leaves; level <<= 1)
        for (Py_ssize_t i = 0; i < count; i++) {
            double left = tree[2 * node[i]], right = tree[2 * node[i] + 1];
            /* an empty right side is never entered, whatever rounding left of the mass */
            int go_right = !(mass[i] < left) & (right > 0);
            mass[i] -= left * go_right; /* no branch: half of them would be guessed wrong */
            node[i] = 2 * node[i] + go_right;
            PREFETCH(tree + 2 * node[i]);
        }
}

/* find(tree, mass, out): the leaf in which each mass lies; mass is used up as working space */
PyObject *tree_find(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    Held held[3] = {{.held = 0}};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OOO", &objects[0], &objects[1], &objects[2])) return NULL;
    if (!hold(objects[0], &held[0], 0, 8, "tree") || !hold(objects[1], &held[1], 1, 8, "mass") ||
        !hold(objects[2], &held[2], 1, 8, "out"))
        goto end;
    int64_t *out = held[2].view.buf;
    Py_ssize_t leaves = held[0].view.len / 16, count = held[1].view.len / 8;
    if (held[2].view.len / 8 != count) {
        PyErr_SetString(PyExc_ValueError, "mass and out differ in length");
        goto end;
    }
    descend(held[0].view.buf, leaves, held[1].view.buf, out, count);
    for (Py_ssize_t i = 0; i < count; i++) out[i] -= leaves;
    result = Py_None;
    Py_INCREF(result);
end:
    release(held, 3);
    return result;
}

/* draw(tree, uniform, expected, out): one leaf from each of as many equal parts of the mass as there are numbers in
 * [0, 1); these become the leaves' values, scaled so that all leaves together have the sum `expected` */
PyObject *tree_draw(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    Held held[3] = {{.held = 0}};
    double expected;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "OOdO", &objects[0], &objects[1], &expected, &objects[2])) return NULL;
    if (!hold(objects[0], &held[0], 0, 8, "tree") || !hold(objects[1], &held[1], 1, 8, "uniform") ||
        !hold(objects[2], &held[2], 1, 8, "out"))
        goto end;
    const double *tree = held[0].view.buf;
    double *uniform = held[1].view.buf;
    int64_t *out = held[2].view.buf;
    Py_ssize_t leaves = held[0].view.len / 16, count = held[1].view.len / 8;
    if (held[2].view.len / 8 != count) {
        PyErr_SetString(PyExc_ValueError, "uniform and out differ in length");
        goto end;
    }
    double part = count ? tree[1] / (double)count : 0;
    for (Py_ssize_t i = 0; i < count; i++) uniform[i] = ((double)i + uniform[i]) * part;
    descend(tree, leaves, uniform, out, count);
    double scale = expected / tree[1];
    for (Py_ssize_t i = 0; i < count; i++) {
        uniform[i] = tree[out[i]] * scale;
        out[i] -= leaves;
    }
    result = Py_None;
    Py_INCREF(result);
end:
    release(held, 3);
    return result;
}
