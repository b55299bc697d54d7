// offpath._native: the C interface for the package's own modules. People use the package, not this.
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <utility>

#include "calls.h"

namespace offpath::python {

std::int64_t wait_ns_of(const Seconds& timeout) {
  if (timeout.is_none()) return OFP_FOREVER;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  if (!(seconds >= 0))
    fail(OFP_INVALID, "a timeout of " + std::to_string(seconds) + " s; it is 0 or more, or None to wait forever");
  constexpr double longest_s = 9e9;
  return seconds >= longest_s ? OFP_FOREVER : static_cast<std::int64_t>(seconds * 1e9);
}

namespace {

int raises(void*) {
  const nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0 ? 1 : 0;
}

// Python runs handlers in its main thread only; other threads need not take the GIL for it.
bool in_main_thread() { return gettid() == getpid(); }

}  // namespace

bool has_masked(PyObject* object) {
  // Each type is checked once; most programs use NumPy's array only. Guarded by the GIL.
  static PyObject* without_mask = nullptr;
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (type == without_mask) return false;
  if (PyObject_HasAttrString(type, "mask") == 0) {
    Py_INCREF(type);
    Py_XDECREF(std::exchange(without_mask, type));
    return false;
  }
  return nb::cast<bool>(nb::bool_(nb::module_::import_("numpy").attr("any")(nb::handle(object).attr("mask"))));
}

Exported exported_bytes(PyObject* object, int flags) {
  if (has_masked(object))
    fail(OFP_SCHEMA,
         "an array with masked values, whose mask bytes have no place for: give filled(…), or data with its mask");
  return {object, flags};
}

Interruptible::Interruptible() {
  if (in_main_thread()) ofp_interruptible(raises, nullptr);
}
Interruptible::~Interruptible() {
  if (in_main_thread()) ofp_interruptible(nullptr, nullptr);
}

}  // namespace offpath::python

NB_MODULE(_native, module) {
  namespace nb = nanobind;
  using namespace offpath::python;
  // A table over the agent's pages that exists at the interpreter's end is not a leak: its buffer outlives the module.
  nb::set_leak_warnings(false);
  module.doc() = "The C interface of Offpath (include/offpath/offpath.h).";
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const CallError& error) {
      const nb::object made = nb::module_::import_("offpath.errors").attr("error_of")(error.code, error.message);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    }
  });
  module.def("version", &ofp_version);
  module.def("code_name", &ofp_code_name);
  module.attr("WOULD_BLOCK") = static_cast<int>(OFP_WOULD_BLOCK);
  bind_channel(module);
  bind_stream(module);
  bind_gauges(module);
  bind_exchange(module);
  bind_tasks(module);
}
