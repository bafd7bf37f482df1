/* Pictures of bytes, channel after channel, as scaled floats with the channels of a pixel beside each other: what torch
 * needs three passes for, one of them with strides that defeat its vector instructions. */
#include "_kernels.h"

#define PIECE 256 /* pixels of four channels that are put together before they become floats */

FAST static void scale_bytes(const uint8_t *restrict from, float *restrict to, Py_ssize_t count, float scale) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (float)from[i] * scale;
}

FAST static void scale_four(const uint8_t *restrict from, float *restrict to, Py_ssize_t size, float scale) {
    const uint8_t *restrict a = from, *restrict b = a + size, *restrict c = b + size, *restrict d = c + size;
    uint8_t together[4 * PIECE];
    for (Py_ssize_t begin = 0; begin < size; begin += PIECE) {
        Py_ssize_t count = size - begin < PIECE ? size - begin : PIECE;
        for (Py_ssize_t i = 0; i < count; i++) {
            together[4 * i] = a[begin + i];
            together[4 * i + 1] = b[begin + i];
            together[4 * i + 2] = c[begin + i];
            together[4 * i + 3] = d[begin + i];
        }
        scale_bytes(together, to + 4 * begin, 4 * count, scale);
    }
}

static void scale_any(const uint8_t *from, float *to, Py_ssize_t size, Py_ssize_t channels, float scale) {
    for (Py_ssize_t channel = 0; channel < channels; channel++)
        for (Py_ssize_t i = 0; i < size; i++) to[i * channels + channel] = (float)from[channel * size + i] * scale;
}

/* Is each picture in one piece? The pictures themselves may lie apart or overlap: stacks that share frames do. */
static int pictures_are_whole(const Py_buffer *source) {
    Py_ssize_t expected = source->itemsize;
    for (int axis = source->ndim - 1; axis > 0; axis--) {
        if (source->shape[axis] > 1 && source->strides[axis] != expected) return 0;
        expected *= source->shape[axis];
    }
    return 1;
}

/* pictures [N, C, H, W] uint8 -> out [N, H, W, C] float32 */
PyObject *pixels(PyObject *self, PyObject *arguments) {
    PyObject *from, *to;
    Py_ssize_t channels;
    double scale;
    Py_buffer source, target;
    if (!PyArg_ParseTuple(arguments, "OndO", &from, &channels, &scale, &to)) return NULL;
    if (PyObject_GetBuffer(from, &source, PyBUF_STRIDES)) return NULL;
    if (PyObject_GetBuffer(to, &target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
        PyBuffer_Release(&source);
        return NULL;
    }
    Py_ssize_t pictures = source.ndim ? source.shape[0] : 0;
    Py_ssize_t bytes = pictures ? source.len / pictures : 0; /* of one picture */
    int fits = source.itemsize == 1 && target.itemsize == sizeof(float) && channels > 0 && bytes % channels == 0 &&
               target.len == source.len * (Py_ssize_t)sizeof(float) && pictures_are_whole(&source);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS;
        for (Py_ssize_t n = 0; n < pictures; n++) {
            const uint8_t *picture = (const uint8_t *)source.buf + n * source.strides[0];
            float *out = (float *)target.buf + n * bytes;
            if (channels == 4) scale_four(picture, out, bytes / 4, (float)scale);
            else if (channels == 1) scale_bytes(picture, out, bytes, (float)scale);
            else scale_any(picture, out, bytes / channels, channels, (float)scale);
        }
        Py_END_ALLOW_THREADS;
    } else {
        PyErr_SetString(PyExc_ValueError,
                        "pictures must be uint8 [N, C, H, W], each in one piece, and out float32 of as many elements");
    }
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    if (!fits) return NULL;
    Py_RETURN_NONE;
}
