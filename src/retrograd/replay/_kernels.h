/* What the replay's C files share: arrays held by the buffer protocol, and the functions of the one module. */
#ifndef RETROGRAD_KERNELS_H
#define RETROGRAD_KERNELS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A hint that this memory will be read soon. It may point anywhere. */
#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

typedef struct {
    Py_buffer view;
    int held;
} Held;

int hold(PyObject *object, Held *held, int writable, Py_ssize_t itemsize, const char *name);
void release(Held *held, int count);

PyObject *tree_set(PyObject *self, PyObject *args);
PyObject *tree_find(PyObject *self, PyObject *args);
PyObject *tree_draw(PyObject *self, PyObject *args);
PyObject *claim(PyObject *self, PyObject *args);
PyObject *windows(PyObject *self, PyObject *args);
PyObject *gather(PyObject *self, PyObject *args);
PyObject *encode(PyObject *self, PyObject *args);
PyObject *decode(PyObject *self, PyObject *args);

#endif
