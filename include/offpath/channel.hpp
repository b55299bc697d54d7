// A connection with an agent, and its requests: objects of pools, gauges.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_CHANNEL_HPP
#define OFFPATH_CHANNEL_HPP

#include <offpath/gauges.hpp>
#include <offpath/handle.hpp>
#include <offpath/objects.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace offpath {

struct ConnectOptions {
  std::string name{};         // this program's name on the agent; empty: the program's own name
  std::string key_file{};     // empty: OFFPATH_KEY_FILE
  std::string tls_ca_file{};  // empty: OFFPATH_TLS_CA_FILE
  Wait wait{std::chrono::seconds(5)};
  std::uint32_t request_ring_slots = 0;
  std::uint64_t staging_bytes_max = 0;
  bool force_staging = false;
};

// One connection with an agent. Usable from several threads; a forked child opens its own.
class Channel {
 public:
  // `address` empty: as NULL in ofp_connect.
  explicit Channel(const std::string& address = {}, const ConnectOptions& options = {}) {
    const auto text = [](const std::string& given) { return given.empty() ? nullptr : given.c_str(); };
    ofp_connect_options c{};
    c.struct_bytes = sizeof c;
    c.name = text(options.name);
    c.key_file = text(options.key_file);
    c.tls_ca_file = text(options.tls_ca_file);
    c.wait_ns = options.wait.count();
    c.request_ring_slots = options.request_ring_slots;
    c.staging_bytes_max = options.staging_bytes_max;
    c.force_staging = options.force_staging ? 1 : 0;
    ofp_channel* channel = nullptr;
    detail::call([&](ofp_error* error) { return ofp_connect(text(address), &c, &channel, error); });
    channel_ = detail::SharedChannel(channel, ofp_close);
  }
  Channel(Channel&&) noexcept = default;
  Channel& operator=(Channel&&) noexcept = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] ofp_channel* get() const noexcept { return channel_.get(); }
  [[nodiscard]] ofp_channel_info info() const {
    ofp_channel_info info{};
    info.struct_bytes = sizeof info;
    detail::call([&](ofp_error* error) { return ofp_channel_info_get(get(), &info, error); });
    return info;
  }
  [[nodiscard]] int event_fd() const noexcept { return ofp_event_fd(get()); }
  void poll() {
    detail::call([&](ofp_error* error) { return ofp_poll(get(), error); });
  }
  struct Probe {
    std::int64_t seen_ns, returned_ns;  // CLOCK_MONOTONIC
  };
  [[nodiscard]] Probe probe(Wait wait = std::chrono::seconds(1)) {
    Probe probe{};
    detail::call(
        [&](ofp_error* error) { return ofp_probe(get(), wait.count(), &probe.seen_ns, &probe.returned_ns, error); });
    return probe;
  }

  // Waits for the object. Error::code() is OFP_NOT_FOUND (without waiting) or OFP_TIMEOUT.
  [[nodiscard]] Frame get(const std::string& pool, const Key& key, Wait wait = Wait::zero()) {
    ofp_frame* frame = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_get(get(), pool.c_str(), key.row.c_str(), key.column.c_str(), wait.count(), &frame, error);
    });
    return Frame(channel_, frame);
  }
  // `name` is the name of the whole set.
  [[nodiscard]] Gauges gauges(const std::string& name, const std::vector<Gauge>& list) {
    std::vector<ofp_gauge> converted;
    for (const Gauge& each : list)
      converted.push_back(
          {each.name.c_str(), each.type.c_str(), each.kind.c_str(), each.unit.c_str(), each.description.c_str()});
    ofp_gauges* gauges = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_gauges_open(get(), name.c_str(), converted.data(), static_cast<std::uint32_t>(converted.size()),
                             &gauges, error);
    });
    return Gauges(channel_, gauges);
  }
  // Objects whose keys match the patterns, in the order of storing.
  [[nodiscard]] std::vector<Entry> list(const std::string& pool, const Key& patterns = {"*", "*"},
                                        Wait wait = std::chrono::seconds(10)) {
    ofp_listing* made = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_list(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), wait.count(), &made,
                           error);
    });
    return detail::entries_of(detail::Owned<ofp_listing>(made));
  }
  // Removes matching objects; returns how many.
  std::uint64_t drop(const std::string& pool, const Key& patterns = {"*", "*"}, Wait wait = std::chrono::seconds(10)) {
    std::uint64_t dropped = 0;
    detail::call([&](ofp_error* error) {
      return ofp_pool_drop(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), wait.count(), &dropped,
                           error);
    });
    return dropped;
  }
  // `query` is of make_query. Error::code() is OFP_TIMEOUT when `wait`, which holds for the whole
  // answer, is over.
  [[nodiscard]] Query query(const std::string& pool, std::span<const std::byte> query, const Key& patterns = {"*", "*"},
                            Wait wait = std::chrono::minutes(1)) {
    ofp_query* answer = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_query(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), query.data(),
                            query.size(), wait.count(), &answer, error);
    });
    return Query(channel_, answer);
  }
  // Calls a function of a plug-in where the object lies. Its output, if it made one; with `result` it is put there
  // instead.
  std::optional<Frame> compute(const std::string& pool, const Key& key, const std::string& plugin,
                               const std::string& function, std::span<const std::byte> arguments = {},
                               const std::optional<Key>& result = {}, Wait wait = std::chrono::minutes(1)) {
    ofp_frame* frame = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_pool_compute(get(), pool.c_str(), key.row.c_str(), key.column.c_str(), plugin.c_str(),
                              function.c_str(), arguments.data(), arguments.size(),
                              result ? result->row.c_str() : nullptr, result ? result->column.c_str() : nullptr,
                              wait.count(), &frame, error);
    });
    return Frame::if_any(channel_, frame);
  }

  // Requests without waiting: each returns immediately, and `wait` is how long it may take. A wanted object need not
  // exist when it is requested.
  [[nodiscard]] Want want(const std::string& pool, const Key& key, Wait wait = forever) {
    return start<Frame>(Frame::of_request, [&](ofp_request** request, ofp_error* error) {
      return ofp_pool_want(get(), pool.c_str(), key.row.c_str(), key.column.c_str(), wait.count(), request, error);
    });
  }
  [[nodiscard]] Request<std::vector<Entry>> start_list(const std::string& pool, const Key& patterns = {"*", "*"},
                                                       Wait wait = std::chrono::seconds(10)) {
    constexpr auto take = [](const detail::SharedChannel&, ofp_request* request) {
      ofp_listing* made = nullptr;
      detail::call([&](ofp_error* error) { return ofp_request_listing(request, &made, error); });
      return detail::entries_of(detail::Owned<ofp_listing>(made));
    };
    return start<std::vector<Entry>>(take, [&](ofp_request** request, ofp_error* error) {
      return ofp_pool_list_start(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), wait.count(),
                                 request, error);
    });
  }
  [[nodiscard]] Request<std::uint64_t> start_drop(const std::string& pool, const Key& patterns = {"*", "*"},
                                                  Wait wait = std::chrono::seconds(10)) {
    constexpr auto take = [](const detail::SharedChannel&, ofp_request* request) {
      std::uint64_t dropped = 0;
      detail::call([&](ofp_error* error) { return ofp_request_dropped(request, &dropped, error); });
      return dropped;
    };
    return start<std::uint64_t>(take, [&](ofp_request** request, ofp_error* error) {
      return ofp_pool_drop_start(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), wait.count(),
                                 request, error);
    });
  }
  [[nodiscard]] Request<Query> start_query(const std::string& pool, std::span<const std::byte> query,
                                           const Key& patterns = {"*", "*"}, Wait wait = std::chrono::minutes(1)) {
    return start<Query>(Query::of_request, [&](ofp_request** request, ofp_error* error) {
      return ofp_pool_query_start(get(), pool.c_str(), patterns.row.c_str(), patterns.column.c_str(), query.data(),
                                  query.size(), wait.count(), request, error);
    });
  }
  [[nodiscard]] Request<std::optional<Frame>> start_compute(const std::string& pool, const Key& key,
                                                            const std::string& plugin, const std::string& function,
                                                            std::span<const std::byte> arguments = {},
                                                            const std::optional<Key>& result = {},
                                                            Wait wait = std::chrono::minutes(1)) {
    return start<std::optional<Frame>>(Frame::of_request_if_any, [&](ofp_request** request, ofp_error* error) {
      return ofp_pool_compute_start(get(), pool.c_str(), key.row.c_str(), key.column.c_str(), plugin.c_str(),
                                    function.c_str(), arguments.data(), arguments.size(),
                                    result ? result->row.c_str() : nullptr, result ? result->column.c_str() : nullptr,
                                    wait.count(), request, error);
    });
  }
  // Writes all objects to `fd` as one Arrow IPC stream; returns the bytes.
  std::uint64_t write(const std::string& pool, int fd, Wait wait = forever) {
    std::uint64_t written = 0;
    detail::call(
        [&](ofp_error* error) { return ofp_pool_write(get(), pool.c_str(), fd, wait.count(), &written, error); });
    return written;
  }

 private:
  friend class Range;
  friend class Segment;
  friend class Exchange;
  friend class Tasks;
  friend class Stream;
  template <class Result, class Post>
  [[nodiscard]] Request<Result> start(typename Request<Result>::Take take, const Post& post) {
    ofp_request* request = nullptr;
    detail::call([&](ofp_error* error) { return post(&request, error); });
    return Request<Result>(channel_, request, take);
  }
  detail::SharedChannel channel_;
};

}  // namespace offpath

#endif  // OFFPATH_CHANNEL_HPP
