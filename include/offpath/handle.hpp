// The base of every part of offpath.hpp: errors as exceptions, times, owners of handles.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_HANDLE_HPP
#define OFFPATH_HANDLE_HPP

#if __cplusplus <= 201703L
#error "offpath's C++ headers need C++20 (-std=c++20); offpath/offpath.h is for C and every C++"
#endif

#include <offpath/offpath.h>

#include <chrono>
#include <memory>
#include <stdexcept>

namespace offpath {

// An error of the C interface: its code and a message that names the field and both values.
class Error : public std::runtime_error {
 public:
  explicit Error(const ofp_error& error)
      : std::runtime_error(error.message), code_(static_cast<ofp_code>(error.code)) {}
  [[nodiscard]] ofp_code code() const noexcept { return code_; }

 private:
  ofp_code code_;
};

using Wait = std::chrono::nanoseconds;
inline constexpr Wait forever{OFP_FOREVER};

namespace detail {

template <class Call>
void call(Call&& make) {
  ofp_error error{};
  if (make(&error) != OFP_OK) throw Error(error);
}

struct Release {
  void operator()(ofp_range* range) const noexcept { (void)ofp_range_retire(range, 1'000'000'000, nullptr); }
  void operator()(ofp_segment* segment) const noexcept { ofp_free(segment); }
  void operator()(ofp_stream* stream) const noexcept { (void)ofp_stream_close(stream, 1'000'000'000, nullptr); }
  void operator()(ofp_frame* frame) const noexcept { ofp_frame_release(frame); }
  void operator()(ofp_listing* listing) const noexcept { ofp_listing_free(listing); }
  void operator()(ofp_request* request) const noexcept { ofp_request_free(request); }
  void operator()(ofp_query* answer) const noexcept { ofp_query_free(answer); }
  void operator()(ofp_gauges* gauges) const noexcept { ofp_gauges_close(gauges); }
  void operator()(ofp_exchange* exchange) const noexcept { ofp_exchange_close(exchange); }
  void operator()(ofp_tasks* tasks) const noexcept { ofp_tasks_close(tasks); }
  void operator()(ofp_task* task) const noexcept { ofp_task_free(task); }
};
template <class Handle>
using Owned = std::unique_ptr<Handle, Release>;
using SharedChannel = std::shared_ptr<ofp_channel>;

}  // namespace detail

}  // namespace offpath

#endif  // OFFPATH_HANDLE_HPP
