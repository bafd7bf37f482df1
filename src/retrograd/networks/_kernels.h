/* What the networks' C files share: the instructions they are compiled for, and the functions of the one module. */
#ifndef RETROGRAD_NETWORK_KERNELS_H
#define RETROGRAD_NETWORK_KERNELS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define FAST __attribute__((target("avx2,fma")))
#else
#define FAST
#endif

PyObject *centered(PyObject *self, PyObject *arguments);
PyObject *plain(PyObject *self, PyObject *arguments);
PyObject *descend(PyObject *self, PyObject *arguments);
PyObject *pixels(PyObject *self, PyObject *arguments);
PyObject *standardized(PyObject *self, PyObject *arguments);

#endif
