// Gauges: values of the program that the agent reads.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "calls.h"

namespace offpath::python {
namespace {

// name, type, kind, unit, description
using Described = std::tuple<std::string, std::string, std::string, std::string, std::string>;

class Gauges {
 public:
  Gauges(nb::handle channel, const std::string& name, const std::vector<Described>& list)
      : channel_(handle_of(channel)) {
    std::vector<ofp_gauge> gauges;
    for (const auto& [field, type, kind, unit, description] : list) {
      gauges.push_back({field.c_str(), type.c_str(), kind.c_str(), unit.c_str(), description.c_str()});
      types_.push_back(type);
    }
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_gauges_open(channel_.get(), name.c_str(), gauges.data(), static_cast<std::uint32_t>(gauges.size()),
                             &gauges_, &error);
    }
    check(code, error);
    slots_.resize(list.size());
  }
  Gauges(const Gauges&) = delete;
  ~Gauges() { close(); }

  void set(std::size_t index, nb::handle value) {
    if (gauges_ == nullptr) fail(OFP_CLOSED, "these gauges are closed");
    if (slots_.at(index) == nullptr) slots_[index] = ofp_gauge_slot(gauges_, static_cast<std::uint32_t>(index));
    if (types_[index] == "f64")
      ofp_gauge_f64(slots_[index], nb::cast<double>(value));
    else if (types_[index] == "i64")
      ofp_gauge_i64(slots_[index], nb::cast<std::int64_t>(value));
    else
      ofp_gauge_u64(slots_[index], nb::cast<std::uint64_t>(value));
  }
  void clear(std::size_t index) {
    if (gauges_ == nullptr) fail(OFP_CLOSED, "these gauges are closed");
    slots_.at(index) = nullptr;
    ofp_gauge_clear(gauges_, static_cast<std::uint32_t>(index));
  }
  void close() {
    ofp_gauges* gauges = std::exchange(gauges_, nullptr);
    const nb::gil_scoped_release release;
    ofp_gauges_close(gauges);
  }

 private:
  ChannelHandle channel_;
  ofp_gauges* gauges_ = nullptr;
  std::vector<std::string> types_;
  std::vector<volatile std::uint64_t*> slots_;
};

}  // namespace

void bind_gauges(nb::module_& module) {
  nb::class_<Gauges>(module, "Gauges")
      .def(nb::init<nb::handle, const std::string&, const std::vector<Described>&>(), nb::arg("channel"),
           nb::arg("name"), nb::arg("gauges"))
      .def("set", &Gauges::set, nb::arg("index"), nb::arg("value"))
      .def("clear", &Gauges::clear, nb::arg("index"))
      .def("close", &Gauges::close);
}

}  // namespace offpath::python
