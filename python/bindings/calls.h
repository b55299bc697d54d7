// Calls of the C interface from Python: errors become exceptions, waits let other threads run and notice Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>
#include <offpath/offpath.h>

#include <memory>
#include <string>

namespace offpath::python {

namespace nb = nanobind;

// Thrown by `check`; module.cc makes it an exception of offpath.errors.
struct CallError {
  int code;
  std::string message;
};

inline void check(int code, const ofp_error& error) {
  if (code != OFP_OK) throw CallError{code, error.message};
}
[[noreturn]] inline void fail(int code, std::string message) { throw CallError{code, std::move(message)}; }

// Seconds; None: forever.
using Seconds = nb::object;
std::int64_t wait_ns_of(const Seconds& timeout);

// Until its end, waits of this thread run Python's signal handlers before they sleep; one that raises ends the wait.
class Interruptible {
 public:
  Interruptible();
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
};

// `call(error)` without the GIL, and interruptible. Returns its code; throws the exception of a signal handler.
template <class Call>
int call_waiting(ofp_error& error, Call&& call) {
  int code = 0;
  {
    const Interruptible interruptible;
    const nb::gil_scoped_release release;
    code = call(&error);
  }
  if (code == OFP_CANCELLED && PyErr_Occurred() != nullptr) throw nb::python_error();
  return code;
}

// One call of `call(wait_ns, error)`. False: it returned `not_yet` until the time was over. Throws other errors.
template <class Call>
bool ended_in_time(const Seconds& timeout, int not_yet, Call&& call) {
  const std::int64_t wait_ns = wait_ns_of(timeout);
  ofp_error error{};
  const int code = call_waiting(error, [&](ofp_error* told) { return call(wait_ns, told); });
  if (code == not_yet) return false;
  check(code, error);
  return true;
}

// The same for calls whose OFP_TIMEOUT is also thrown.
template <class Call>
void wait_for(const Seconds& timeout, Call&& call) {
  (void)ended_in_time(timeout, -1, call);
}

using ChannelHandle = std::shared_ptr<ofp_channel>;
using StreamHandle = std::shared_ptr<ofp_stream>;

// Values of this buffer are masked (numpy.ma and similar), which the buffer itself does not show.
bool has_masked(PyObject* object);

// One exported buffer; released with the GIL held.
class Exported {
 public:
  Exported() = default;
  Exported(PyObject* object, int flags) {
    if (PyObject_GetBuffer(object, &view_, flags) != 0) throw nb::python_error();
  }
  Exported(Exported&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  Exported& operator=(Exported&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~Exported() {
    if (view_.obj != nullptr) PyBuffer_Release(&view_);
  }
  [[nodiscard]] const Py_buffer& view() const noexcept { return view_; }

 private:
  Py_buffer view_{};
};

// A buffer of plain bytes. Throws if values are masked: bytes have no place for a mask.
Exported exported_bytes(PyObject* object, int flags);

void bind_channel(nb::module_& module);
void bind_exchange(nb::module_& module);
void bind_stream(nb::module_& module);
void bind_gauges(nb::module_& module);
void bind_tasks(nb::module_& module);
ChannelHandle handle_of(nb::handle channel);

}  // namespace offpath::python
