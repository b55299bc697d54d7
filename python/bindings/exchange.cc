// ofp_exchange_*: the package's exchange.py makes something pleasant of it.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "calls.h"

namespace offpath::python {

ChannelHandle handle_of(nb::handle channel);

namespace {

class View {
 public:
  explicit View(ofp_view* view) : view_(view) {}
  View(View&& other) noexcept : view_(std::exchange(other.view_, nullptr)) {}
  View& operator=(View&&) = delete;
  ~View() { ofp_view_free(view_); }

  [[nodiscard]] nb::dict info() const {
    ofp_view_info info{};
    info.struct_bytes = sizeof info;
    ofp_error error{};
    check(ofp_view_info_get(view_, &info, &error), error);
    nb::dict told;
    told["number"] = info.number;
    told["epoch"] = info.epoch;
    told["present"] = info.present;
    told["expected"] = info.expected;
    told["whole"] = info.whole != 0;
    told["leader"] = info.leader;
    told["is_leader"] = info.is_leader != 0;
    told["cut"] = info.cut != 0;
    told["took_ns"] = info.took_ns;
    told["figure_members"] = info.figure_members;
    told["tree"] = info.tree;
    told["entries"] = info.entries;
    told["figures"] = info.figures;
    return told;
  }
  // (member, present, has_value, epoch, age_ns, record)
  [[nodiscard]] nb::tuple entry(std::uint32_t index) const {
    ofp_view_entry entry{};
    if (ofp_view_entry_get(view_, index, &entry) != OFP_OK)
      fail(OFP_NOT_FOUND, "the view has no entry " + std::to_string(index));
    return nb::make_tuple(entry.member, entry.present != 0, entry.has_value != 0, entry.epoch, entry.age_ns,
                          nb::bytes(static_cast<const char*>(entry.record), entry.record_bytes));
  }
  // (count, value, exact, [(value, member)], [bins])
  [[nodiscard]] nb::tuple figure(std::uint32_t index) const {
    ofp_view_figure figure{};
    if (ofp_view_figure_get(view_, index, &figure) != OFP_OK)
      fail(OFP_NOT_FOUND, "the view has no figure " + std::to_string(index));
    nb::list top, bins;
    for (std::uint32_t i = 0; i < figure.top_count; ++i)
      top.append(nb::make_tuple(figure.top[i].value, figure.top[i].member));
    for (std::uint32_t i = 0; i < figure.bins_count; ++i) bins.append(figure.bins[i]);
    return nb::make_tuple(figure.count, figure.value, figure.exact, top, bins);
  }

 private:
  ofp_view* view_;
};

class Exchange {
 public:
  Exchange(nb::handle channel, const std::string& name, bool publish,
           const std::vector<std::tuple<std::string, std::string, std::string>>& fields, std::uint64_t record_bytes_max,
           std::uint64_t view_bytes_max)
      : channel_(handle_of(channel)) {
    std::vector<ofp_field> given;
    for (const auto& [field, type, unit] : fields)
      given.push_back({field.c_str(), type.empty() ? '?' : type[0], unit.c_str()});
    ofp_exchange_options options{};
    options.struct_bytes = sizeof options;
    options.publish = publish ? 1 : 0;
    options.fields = given.data();
    options.fields_count = static_cast<std::uint32_t>(given.size());
    options.record_bytes_max = record_bytes_max;
    options.view_bytes_max = view_bytes_max;
    ofp_error error{};
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_exchange_open(channel_.get(), name.c_str(), &options, &exchange_, &error);
    }
    check(code, error);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() { close(); }

  void close() {
    ofp_exchange* exchange = std::exchange(exchange_, nullptr);
    const nb::gil_scoped_release release;
    ofp_exchange_close(exchange);
  }
  [[nodiscard]] nb::dict info() const {
    ofp_exchange_info info{};
    info.struct_bytes = sizeof info;
    ofp_error error{};
    check(ofp_exchange_info_get(open(), &info, &error), error);
    nb::list members, fields, reductions;
    for (std::uint32_t i = 0; i < info.members; ++i) members.append(nb::str(ofp_exchange_member(exchange_, i)));
    for (std::uint32_t i = 0; i < info.fields; ++i) {
      ofp_field field{};
      (void)ofp_exchange_field(exchange_, i, &field);
      fields.append(nb::make_tuple(nb::str(field.name), nb::str(&field.type, 1),
                                   nb::str(field.unit != nullptr ? field.unit : "")));
    }
    for (std::uint32_t i = 0; i < info.reductions; ++i)
      reductions.append(nb::str(ofp_exchange_reduction(exchange_, i)));
    nb::dict told;
    told["members"] = members;
    told["self"] = info.self;
    told["fields"] = fields;
    told["reductions"] = reductions;
    told["has_grants"] = info.has_grants != 0;
    told["record_bytes_max"] = info.record_bytes_max;
    told["interval_ns"] = info.interval_ns;
    told["deadline_ns"] = info.deadline_ns;
    told["grant_total"] = info.grant_total;
    told["topology"] = nb::str(info.topology);
    return told;
  }
  void publish(nb::handle record) const {
    const Exported bytes = exported_bytes(record.ptr(), PyBUF_C_CONTIGUOUS);
    ofp_error error{};
    check(ofp_exchange_publish(open(), bytes.view().buf, static_cast<std::uint64_t>(bytes.view().len), &error), error);
  }
  [[nodiscard]] View view(const Seconds& timeout) const {
    ofp_view* view = nullptr;
    (void)open();
    wait_for(timeout, [&](std::int64_t wait_ns, ofp_error* error) {
      return ofp_exchange_view(exchange_, wait_ns, &view, error);
    });
    return View(view);
  }
  [[nodiscard]] bool grant(const std::vector<std::uint32_t>& members, const std::vector<std::uint64_t>& amounts) const {
    if (members.size() != amounts.size()) fail(OFP_INVALID, "as many amounts as members");
    std::uint32_t may_grant = 0;
    ofp_error error{};
    (void)open();
    int code = 0;
    {
      const nb::gil_scoped_release release;
      code = ofp_exchange_grant(exchange_, members.data(), amounts.data(), static_cast<std::uint32_t>(members.size()),
                                &may_grant, &error);
    }
    check(code, error);
    return may_grant != 0;
  }
  [[nodiscard]] nb::tuple granted() const {
    std::uint64_t amount = 0;
    std::int64_t left_ns = 0;
    ofp_error error{};
    check(ofp_exchange_granted(open(), &amount, &left_ns, &error), error);
    return nb::make_tuple(amount, left_ns);
  }

 private:
  [[nodiscard]] ofp_exchange* open() const {
    if (exchange_ == nullptr) fail(OFP_CLOSED, "the exchange is closed");
    return exchange_;
  }
  ChannelHandle channel_;
  ofp_exchange* exchange_ = nullptr;
};

}  // namespace

void bind_exchange(nb::module_& module) {
  nb::class_<View>(module, "View")
      .def("info", &View::info)
      .def("entry", &View::entry, nb::arg("index"))
      .def("figure", &View::figure, nb::arg("index"));
  nb::class_<Exchange>(module, "Exchange")
      .def(nb::init<nb::handle, const std::string&, bool,
                    const std::vector<std::tuple<std::string, std::string, std::string>>&, std::uint64_t,
                    std::uint64_t>(),
           nb::arg("channel"), nb::arg("name"), nb::arg("publish"), nb::arg("fields"), nb::arg("record_bytes_max"),
           nb::arg("view_bytes_max"))
      .def("close", &Exchange::close)
      .def("info", &Exchange::info)
      .def("publish", &Exchange::publish, nb::arg("record"))
      .def("view", &Exchange::view, nb::arg("timeout").none())
      .def("grant", &Exchange::grant, nb::arg("members"), nb::arg("amounts"))
      .def("granted", &Exchange::granted);
}

}  // namespace offpath::python
