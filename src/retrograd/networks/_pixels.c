/* Pictures of bytes, channel after channel, as scaled floats with the channels of a pixel beside each other: what torch
 * needs three passes for, one of them with strides that defeat its vector instructions. */
#include "_kernels.h"

#define PIECE 256 /* pixels of four channels that are put together before they become floats */

/* What a byte becomes: byte * scale, or where there is a gain for each place [H, W, C] byte * gain + shift, cut at limit */
typedef struct {
    float scale, limit;
    const float *gain, *shift;
} Conversion;

FAST static void scale_bytes(const uint8_t *restrict from, float *restrict to, Py_ssize_t count, float scale) {
    for (Py_ssize_t i = 0; i < count; i++) to[i] = (float)from[i] * scale;
}

FAST static void standardize_bytes(const uint8_t *restrict from, float *restrict to, Py_ssize_t count,
                                   const float *restrict gain, const float *restrict shift, float limit) {
    for (Py_ssize_t i = 0; i < count; i++) {
        float x = (float)from[i] * gain[i] + shift[i];
        x = x > limit ? limit : x;
        to[i] = x < -limit ? -limit : x;
    }
}

/* count bytes that lie as in the output, which begin there at place */
static void convert(const uint8_t *from, float *to, Py_ssize_t place, Py_ssize_t count, const Conversion *how) {
    if (how->gain) standardize_bytes(from, to + place, count, how->gain + place, how->shift + place, how->limit);
    else scale_bytes(from, to + place, count, how->scale);
}

FAST static void convert_four(const uint8_t *restrict from, float *restrict to, Py_ssize_t size, const Conversion *how) {
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
        convert(together, to, 4 * begin, 4 * count, how);
    }
}

static void convert_any(const uint8_t *from, float *to, Py_ssize_t size, Py_ssize_t channels, const Conversion *how) {
    for (Py_ssize_t channel = 0; channel < channels; channel++)
        for (Py_ssize_t i = 0; i < size; i++) convert(from + channel * size + i, to, i * channels + channel, 1, how);
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
static PyObject *convert_pictures(PyObject *from, Py_ssize_t channels, const Conversion *how, Py_ssize_t places,
                                  PyObject *to) {
    Py_buffer source, target;
    if (PyObject_GetBuffer(from, &source, PyBUF_STRIDES)) return NULL;
    if (PyObject_GetBuffer(to, &target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
        PyBuffer_Release(&source);
        return NULL;
    }
    Py_ssize_t pictures = source.ndim ? source.shape[0] : 0;
    Py_ssize_t bytes = pictures ? source.len / pictures : 0; /* of one picture */
    int fits = source.itemsize == 1 && target.itemsize == sizeof(float) && channels > 0 && bytes % channels == 0 &&
               target.len == source.len * (Py_ssize_t)sizeof(float) && pictures_are_whole(&source) &&
               (!how->gain || !pictures || places == bytes);
    if (fits) {
        Py_BEGIN_ALLOW_THREADS;
        for (Py_ssize_t n = 0; n < pictures; n++) {
            const uint8_t *picture = (const uint8_t *)source.buf + n * source.strides[0];
            float *out = (float *)target.buf + n * bytes;
            if (channels == 4) convert_four(picture, out, bytes / 4, how);
            else if (channels == 1) convert(picture, out, 0, bytes, how);
            else convert_any(picture, out, bytes / channels, channels, how);
        }
        Py_END_ALLOW_THREADS;
    } else {
        PyErr_SetString(PyExc_ValueError,
                        "pictures must be uint8 [N, C, H, W], each in one piece, out float32 of as many elements, and "
                        "gain and shift float32 [H, W, C]");
    }
    PyBuffer_Release(&source);
    PyBuffer_Release(&target);
    if (!fits) return NULL;
    Py_RETURN_NONE;
}

PyObject *pixels(PyObject *self, PyObject *arguments) {
    PyObject *from, *to;
    Py_ssize_t channels;
    double scale;
    if (!PyArg_ParseTuple(arguments, "OndO", &from, &channels, &scale, &to)) return NULL;
    Conversion how = {(float)scale, 0, NULL, NULL};
    return convert_pictures(from, channels, &how, 0, to);
}

PyObject *standardized(PyObject *self, PyObject *arguments) {
    PyObject *from, *gains, *shifts, *to, *done = NULL;
    Py_ssize_t channels;
    double limit;
    Py_buffer gain, shift;
    if (!PyArg_ParseTuple(arguments, "OnOOdO", &from, &channels, &gains, &shifts, &limit, &to)) return NULL;
    if (PyObject_GetBuffer(gains, &gain, PyBUF_C_CONTIGUOUS)) return NULL;
    if (!PyObject_GetBuffer(shifts, &shift, PyBUF_C_CONTIGUOUS)) {
        Conversion how = {0, (float)limit, gain.buf, shift.buf};
        /* unequal or of another type: no picture has so many places */
        Py_ssize_t places = gain.itemsize == sizeof(float) && shift.itemsize == sizeof(float) && gain.len == shift.len
                                ? gain.len / (Py_ssize_t)sizeof(float)
                                : -1;
        done = convert_pictures(from, channels, &how, places, to);
        PyBuffer_Release(&shift);
    }
    PyBuffer_Release(&gain);
    return done;
}
