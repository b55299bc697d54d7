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

// Seconds, None for ever.
using Seconds = nb::object;
std::int64_t wait_ns_of(const Seconds& timeout);

// Calls `call(wait_ns, error)` without the GIL in slices, so that signals are seen, as long as it returns `not_yet`.
// False: it did until the time was over, and `error` says what it said last. Throws what else it returns.
template <class Call>
bool in_slices(const Seconds& timeout, int not_yet, ofp_error& error, Call&& call) {
  constexpr std::int64_t slice_ns = 50'000'000;
  std::int64_t left_ns = wait_ns_of(timeout);
  while (true) {
    const std::int64_t now_ns = left_ns < 0 || left_ns > slice_ns ? slice_ns : left_ns;
    error = {};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = call(now_ns, &error);
    }
    if (code == OFP_OK) return true;
    if (code != not_yet) check(code, error);
    if (left_ns >= 0) left_ns -= now_ns;
    if (left_ns == 0) return false;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

// For calls that say by OFP_TIMEOUT that it goes on; thrown when the time is over.
template <class Call>
void wait_in_slices(const Seconds& timeout, Call&& call) {
  ofp_error error{};
  if (!in_slices(timeout, OFP_TIMEOUT, error, call)) check(OFP_TIMEOUT, error);
}

using ChannelHandle = std::shared_ptr<ofp_channel>;
using StreamHandle = std::shared_ptr<ofp_stream>;

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

void bind_channel(nb::module_& module);
void bind_exchange(nb::module_& module);
void bind_stream(nb::module_& module);
void bind_gauges(nb::module_& module);
void bind_tasks(nb::module_& module);
ChannelHandle handle_of(nb::handle channel);

}  // namespace offpath::python
