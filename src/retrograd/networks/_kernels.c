/* Inner loops of the networks as one module: steps of RMSprop (_steps.c) and pictures as the first convolution wants them
 * (_pixels.c). Torch can do all of it, in more passes over memory; the tests hold both ways together, bit for bit.
 * VERSION grows with every change that the Python side must know of. */
#include "_kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
static int usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#elif defined(__aarch64__)
static int usable(void) { return 1; }
#else
static int usable(void) { return 0; }
#endif

static PyMethodDef methods[] = {
    {"centered", centered, METH_VARARGS, "centered(grad, mean, square, root, decay, 1 - decay, 1 - momentum, eps)"},
    {"plain", plain, METH_VARARGS, "plain(grad, square, root, decay, 1 - decay, eps)"},
    {"descend", descend, METH_VARARGS, "descend(grad, root, weight, lr)"},
    {"pixels", pixels, METH_VARARGS, "pixels(pictures, channels, scale, out)"},
    {"standardized", standardized, METH_VARARGS, "standardized(pictures, channels, gain, shift, limit, out)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && (PyModule_AddIntConstant(made, "VERSION", 3) < 0 ||
                 PyModule_AddIntConstant(made, "USABLE", usable()) < 0)) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
