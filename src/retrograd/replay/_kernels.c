/* The inner loops of the replay as one module: a sum tree (_tree.c), steps and their windows in a ring (_steps.c),
 * copying and coding frames (_frames.c). Every function has an equal in numpy beside its caller; the tests hold the two
 * together, bit for bit. VERSION grows with every change that the Python side must know of. */
#include "_kernels.h"

int hold(PyObject *object, Held *held, int writable, Py_ssize_t itemsize, const char *name) {
    int flags = writable ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS;
    held->held = PyObject_GetBuffer(object, &held->view, flags) == 0;
    if (!held->held) return 0;
    if (itemsize && held->view.itemsize != itemsize) {
        PyErr_Format(PyExc_ValueError, "%s has items of %zd bytes, not %zd", name, held->view.itemsize, itemsize);
        return 0;
    }
    return 1;
}

void release(Held *held, int count) {
    for (int i = 0; i < count; i++)
        if (held[i].held) PyBuffer_Release(&held[i].view);
}

static PyMethodDef methods[] = {
    {"set", tree_set, METH_VARARGS, "set(tree, index, value, capacity)"},
    {"find", tree_find, METH_VARARGS, "find(tree, mass, out)"},
    {"draw", tree_draw, METH_VARARGS, "draw(tree, uniform, expected, out)"},
    {"claim", claim, METH_VARARGS,
     "claim(index, priority, valid, written, block, slots_per_row, slot, value) -> count"},
    {"windows", windows, METH_VARARGS,
     "windows(flags, since, reward, powers, written, start, slots_per_row, stack, cut, terminated, index, reward, "
     "discount, slot) -> shift"},
    {"gather", gather, METH_VARARGS, "gather(frames, frame_count, slot, out)"},
    {"encode", encode, METH_VARARGS, "encode(block, frame_bytes, line_bytes) -> bytes"},
    {"decode", decode, METH_VARARGS, "decode(blocks, open, slot, out, block_frames, blocks_per_row, line_bytes)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "VERSION", 4) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
