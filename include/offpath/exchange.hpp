// Records that agents exchange, and a program's part in it.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_EXCHANGE_HPP
#define OFFPATH_EXCHANGE_HPP

#include <offpath/channel.hpp>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace offpath {

// The state of an exchange's members after one round. Records live as long as the view.
class View {
 public:
  explicit View(ofp_view* view) : view_(view) {
    info_.struct_bytes = sizeof info_;
    detail::call([&](ofp_error* error) { return ofp_view_info_get(view, &info_, error); });
    borrowed_ = false;
  }
  // A view that its caller frees, such as ofp_on_view's.
  explicit View(const ofp_view* view) : view_(const_cast<ofp_view*>(view)), borrowed_(true) {
    info_.struct_bytes = sizeof info_;
    detail::call([&](ofp_error* error) { return ofp_view_info_get(view, &info_, error); });
  }
  View(View&& other) noexcept
      : view_(std::exchange(other.view_, nullptr)), borrowed_(other.borrowed_), info_(other.info_) {}
  View& operator=(View&&) = delete;
  ~View() {
    if (!borrowed_) ofp_view_free(view_);
  }

  [[nodiscard]] const ofp_view_info& info() const noexcept { return info_; }
  [[nodiscard]] bool complete() const noexcept { return info_.present == info_.expected; }
  [[nodiscard]] ofp_view_entry entry(std::uint32_t index) const {
    ofp_view_entry entry{};
    if (ofp_view_entry_get(view_, index, &entry) != OFP_OK) throw std::out_of_range("the view has no such entry");
    return entry;
  }
  // The record as a plain struct; empty without a record, or if it has another size.
  template <class Record>
  [[nodiscard]] std::optional<Record> record(std::uint32_t index) const {
    static_assert(std::is_trivially_copyable_v<Record>);
    const ofp_view_entry found = entry(index);
    if (found.has_value == 0 || found.record_bytes != sizeof(Record)) return std::nullopt;
    Record record;
    std::memcpy(&record, found.record, sizeof record);
    return record;
  }
  [[nodiscard]] ofp_view_figure figure(std::uint32_t index) const {
    ofp_view_figure figure{};
    if (ofp_view_figure_get(view_, index, &figure) != OFP_OK) throw std::out_of_range("the view has no such figure");
    return figure;
  }

 private:
  ofp_view* view_;
  bool borrowed_ = true;
  ofp_view_info info_{};
};

struct ExchangeOptions {
  bool publish = false;
  std::vector<ofp_field> fields{};
  std::uint64_t record_bytes_max = 0, view_bytes_max = 0;
};

// This program's part in an exchange of agents (offpath.h).
class Exchange {
 public:
  Exchange(const Channel& channel, const std::string& name, const ExchangeOptions& options = {})
      : channel_(channel.channel_) {
    ofp_exchange_options c{};
    c.struct_bytes = sizeof c;
    c.publish = options.publish ? 1 : 0;
    c.fields = options.fields.data();
    c.fields_count = static_cast<std::uint32_t>(options.fields.size());
    c.record_bytes_max = options.record_bytes_max;
    c.view_bytes_max = options.view_bytes_max;
    ofp_exchange* exchange = nullptr;
    detail::call(
        [&](ofp_error* error) { return ofp_exchange_open(channel.get(), name.c_str(), &c, &exchange, error); });
    exchange_.reset(exchange);
  }

  [[nodiscard]] ofp_exchange* get() const noexcept { return exchange_.get(); }
  [[nodiscard]] ofp_exchange_info info() const {
    ofp_exchange_info info{};
    info.struct_bytes = sizeof info;
    detail::call([&](ofp_error* error) { return ofp_exchange_info_get(get(), &info, error); });
    return info;
  }
  [[nodiscard]] std::string member(std::uint32_t index) const {
    const char* name = ofp_exchange_member(get(), index);
    return name != nullptr ? name : "";
  }
  template <class Record>
  void publish(const Record& record) {
    static_assert(std::is_trivially_copyable_v<Record>);
    publish(&record, sizeof record);
  }
  void publish(const void* record, std::uint64_t bytes) {
    detail::call([&](ofp_error* error) { return ofp_exchange_publish(get(), record, bytes, error); });
  }
  [[nodiscard]] View view(Wait wait = forever) {
    ofp_view* view = nullptr;
    detail::call([&](ofp_error* error) { return ofp_exchange_view(get(), wait.count(), &view, error); });
    return View(view);
  }
  // Requests an amount for each of these members. Returns whether this agent leads and may grant now.
  bool grant(std::span<const std::uint32_t> members, std::span<const std::uint64_t> amounts) {
    if (members.size() != amounts.size())
      throw std::invalid_argument(std::to_string(amounts.size()) + " amounts for " + std::to_string(members.size()) +
                                  " members");
    std::uint32_t may_grant = 0;
    detail::call([&](ofp_error* error) {
      return ofp_exchange_grant(get(), members.data(), amounts.data(), static_cast<std::uint32_t>(members.size()),
                                &may_grant, error);
    });
    return may_grant != 0;
  }
  struct Granted {
    std::uint64_t amount;
    Wait left;
  };
  [[nodiscard]] Granted granted() const {
    std::uint64_t amount = 0;
    std::int64_t left_ns = 0;
    detail::call([&](ofp_error* error) { return ofp_exchange_granted(get(), &amount, &left_ns, error); });
    return {amount, Wait(left_ns)};
  }

 private:
  detail::SharedChannel channel_;
  detail::Owned<ofp_exchange> exchange_;
};

}  // namespace offpath

#endif  // OFFPATH_EXCHANGE_HPP
