// Streams of batches from this program's memory.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef OFFPATH_STREAM_HPP
#define OFFPATH_STREAM_HPP

#include <offpath/channel.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace offpath {

// A column of plain memory, as ofp_column.
struct Column {
  std::string name;
  std::string format;  // "i" int32, "l" int64, "f" "g" floats, "+w:3g" three doubles a row
  std::uint32_t stride_bytes = 0;
};

struct StreamOptions {
  std::string pool{};  // empty: "local:/" and the stream's name
  std::string destination = "ipc-page";
  std::uint64_t rows_max = 0;         // of the largest batch; Stream::grow raises it
  std::uint64_t keep = 0;             // frames the pool keeps; 0: all
  std::uint32_t ranks = 0, rank = 0;  // of a parallel program
  std::string compression = "none";   // or "lz4" or "zstd", of frames that are ipc or ipc-page
};

enum class Send : std::uint32_t {
  none = 0,
  wait = OFP_SEND_WAIT,
  snapshot = OFP_SEND_SNAPSHOT,
  announce = OFP_SEND_ANNOUNCE,
};
[[nodiscard]] constexpr Send operator|(Send a, Send b) noexcept {
  return static_cast<Send>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}

using Ticket = std::uint64_t;

class Stream {
 public:
  // The default of sends: wait for room and credit, announce memory that is not announced.
  static constexpr Send usual = Send::wait | Send::announce;

  Stream(const Channel& channel, const std::string& name, const std::vector<Column>& columns,
         const StreamOptions& options)
      : channel_(channel.channel_) {
    std::vector<ofp_column> list;
    for (const Column& column : columns)
      list.push_back({column.name.c_str(), column.format.c_str(), column.stride_bytes});
    const ofp_stream_options c = converted(options);
    ofp_stream* stream = nullptr;
    detail::call([&](ofp_error* error) {
      return ofp_stream_open_columns(channel.get(), name.c_str(), list.data(), static_cast<std::uint32_t>(list.size()),
                                     &c, &stream, error);
    });
    stream_.reset(stream);
  }
  // Any schema, by the Arrow C data interface; not consumed.
  Stream(const Channel& channel, const std::string& name, const ArrowSchema& schema, const StreamOptions& options)
      : channel_(channel.channel_) {
    const ofp_stream_options c = converted(options);
    ofp_stream* stream = nullptr;
    detail::call(
        [&](ofp_error* error) { return ofp_stream_open(channel.get(), name.c_str(), &schema, &c, &stream, error); });
    stream_.reset(stream);
  }

  [[nodiscard]] ofp_stream* get() const noexcept { return stream_.get(); }

  // Later batches may have this many rows; fewer than before has no effect. Batches under way are not affected.
  void grow(std::uint64_t rows_max, Wait wait = forever) {
    detail::call([&](ofp_error* error) { return ofp_stream_grow(get(), rows_max, wait.count(), error); });
  }

  // How long sends of this thread wait with Send::wait; then they throw, with OFP_TIMEOUT.
  static void wait_to_send(Wait wait) noexcept { ofp_send_wait(wait.count()); }

  // One pointer for each column, at its first value.
  Ticket send(std::span<const void* const> columns, std::uint64_t rows, const Key& key, Send flags = usual) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) {
      return ofp_send_columns(get(), columns.data(), rows, key.row.c_str(), key.column.c_str(),
                              static_cast<std::uint32_t>(flags), &ticket, error);
    });
    return ticket;
  }
  Ticket send(std::initializer_list<const void*> columns, std::uint64_t rows, const Key& key, Send flags = usual) {
    return send(std::span<const void* const>(columns.begin(), columns.size()), rows, key, flags);
  }
  // A record batch as a struct array; not consumed, to be kept alive until pulled.
  Ticket send(const ArrowArray& batch, const Key& key, Send flags = usual) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) {
      return ofp_send(get(), &batch, key.row.c_str(), key.column.c_str(), static_cast<std::uint32_t>(flags), &ticket,
                      error);
    });
    return ticket;
  }
  // Gathers pieces into a new object of `object_bytes`, or into one that a move created (`mode` OFP_MOVE_UPDATE).
  Ticket move(std::span<const ofp_piece> pieces, std::uint64_t object_bytes, const Key& key,
              std::uint32_t mode = OFP_MOVE_CREATE, Send flags = usual) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) {
      return ofp_move(get(), pieces.data(), static_cast<std::uint32_t>(pieces.size()), object_bytes, key.row.c_str(),
                      key.column.c_str(), mode, static_cast<std::uint32_t>(flags), &ticket, error);
    });
    return ticket;
  }
  Ticket step_end(const std::string& row) {
    Ticket ticket = 0;
    detail::call([&](ofp_error* error) { return ofp_step_end(get(), row.c_str(), &ticket, error); });
    return ticket;
  }

  void wait_pulled(Ticket ticket, Wait wait = forever) {
    detail::call([&](ofp_error* error) { return ofp_wait_pulled(get(), ticket, wait.count(), error); });
  }
  void wait_stored(Ticket ticket, Wait wait = forever) {
    detail::call([&](ofp_error* error) { return ofp_wait_stored(get(), ticket, wait.count(), error); });
  }
  [[nodiscard]] Ticket pulled() const noexcept { return ofp_pulled(get()); }
  [[nodiscard]] Ticket stored() const noexcept { return ofp_stored(get()); }
  [[nodiscard]] std::uint64_t credit_bytes() const noexcept { return ofp_credit_bytes(get()); }
  // Ends the stream and throws on failure; the destructor ends it without a report.
  void close(Wait wait = std::chrono::seconds(1)) {
    detail::call([&](ofp_error* error) { return ofp_stream_close(stream_.release(), wait.count(), error); });
  }

 private:
  static ofp_stream_options converted(const StreamOptions& options) {
    ofp_stream_options c{};
    c.struct_bytes = sizeof c;
    c.pool = options.pool.empty() ? nullptr : options.pool.c_str();
    c.destination = options.destination.c_str();
    c.rows_max = options.rows_max;
    c.keep = options.keep;
    c.ranks = options.ranks;
    c.rank = options.rank;
    c.compression = options.compression.c_str();
    return c;
  }
  detail::SharedChannel channel_;
  detail::Owned<ofp_stream> stream_;
};

}  // namespace offpath

#endif  // OFFPATH_STREAM_HPP
