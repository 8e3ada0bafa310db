# Make a named tuple of its parts, without a call of the type: one allocation, no arguments parsed.

cdef extern from *:
    """
    static inline PyObject *imago_named(PyObject *type, PyObject *parts) {
        Py_ssize_t at, size = PyTuple_GET_SIZE(parts);
        PyObject *item = ((PyTypeObject *) type)->tp_alloc((PyTypeObject *) type, size);
        if (item == NULL) return NULL;
        for (at = 0; at < size; at++) {
            PyObject *part = PyTuple_GET_ITEM(parts, at);
            Py_INCREF(part);
            PyTuple_SET_ITEM(item, at, part);
        }
        return item;
    }
    """
    object imago_named(object kind, tuple parts)
