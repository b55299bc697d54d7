// A host program for simulations: HostEnd plus the parts of src/host that send columns and read them back.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "channel/host_end.h"
#include "channel/reply.h"
#include "frame/schema.h"
#include "testing/link/loopback_link.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::sim {

// Plain columns of int64, each with an array of its own.
struct Column {
  std::vector<std::int64_t> values;
  channel::HostEnd::RangeName range{};
  std::int64_t* segment = nullptr;  // where they lie instead, if it is not null: memory shared with the agent
};

struct Sent {
  std::uint64_t ticket = 0;
  std::string row_key;
  std::vector<std::vector<std::int64_t>> values;  // as they were when it was posted
};

class SimHost {
 public:
  SimHost(std::shared_ptr<link::LoopbackFabric> fabric, std::unique_ptr<link::HostLink> link,
          const wire::ChannelLayout& layout)
      : fabric_(std::move(fabric)), end_(std::move(link), layout, link::LoopbackFabric::clock, fabric_.get()) {}

  // Opens a stream of `columns` int64 columns.
  Status open(const std::string& name, const std::string& pool, std::size_t columns, std::uint64_t rows_max,
              wire::Destination destination, wire::Compression compression, std::uint32_t ranks, std::uint32_t rank,
              TimeNs deadline) {
    frame::Schema schema;
    for (std::size_t i = 0; i < columns; ++i)
      schema.fields.push_back({.name = fmt::format("c{}", i), .type = frame::Type::int64, .nullable = false});
    const std::vector<std::byte> encoded = frame::encode(schema);
    wire::OpenStream open{.stream = 0,
                          .destination = destination,
                          .rows_max = rows_max,
                          .keep = 0,
                          .ranks = ranks,
                          .rank = rank,
                          .name = name,
                          .pool = pool,
                          .schema = encoded,
                          .compression = compression};
    OFP_ASSIGN(const wire::Opened opened, end_.open_stream(open, deadline));
    stream_ = opened.stream;
    charge_base_ = opened.charge_base;
    pool_ = pool;
    return {};
  }

  Result<std::uint64_t> send(const std::vector<Column>& columns, std::uint64_t rows, const std::string& row_key,
                             const std::string& column_key, TimeNs deadline) {
    wire::Send send{.stream = stream_,
                    .charge = charge_base_ + wire::charge_of_keys(row_key, column_key),
                    .rows = rows,
                    .row_key = row_key,
                    .column_key = column_key,
                    .nodes = {},
                    .buffers = {}};
    auto posting = end_.begin();
    for (const Column& column : columns) {
      std::uint32_t hint = column.range.region;
      OFP_ASSIGN(
          channel::BufferRef ref,
          end_.name_memory(posting, column.segment != nullptr ? column.segment : column.values.data(), rows * 8, hint));
      ref.generation = column.range.generation;
      send.charge += wire::charge_of_buffer(rows * 8);
      send.buffers.push_back(ref);
    }
    // Every other send goes by a set's number; without buffers where the agent has them.
    std::vector<channel::HostEnd::RangeName> uses;
    channel::find_uses(send.buffers, uses);
    send.set = ++sends_ % 2 == 0 ? 1 + static_cast<std::uint32_t>(sends_ * 7 % wire::sets_max) : 0;
    const Set named{rows, send.buffers};
    if (send.set != 0 && sets_[send.set] == named) send.buffers.clear();
    std::vector<std::byte> payload;
    wire::encode(send, payload);
    auto ticket = end_.post_data(posting, wire::EntryKind::send, stream_, payload, send.charge,
                                 rows * 8 * columns.size(), uses, deadline);
    if (ticket && send.set != 0) sets_[send.set] = named;
    return ticket;
  }

  // The object's bytes: from the answer, from the descriptor, or by way of a segment.
  Result<std::vector<std::byte>> get(const std::string& row_key, const std::string& column_key, TimeNs wait_ns) {
    const TimeNs deadline = deadline_after(end_.now(), wait_ns + second_ns);
    OFP_ASSIGN(const wire::Got got,
               ask(wire::EntryKind::pool_get, wire::PoolGet{pool_, row_key, column_key, wait_ns}, deadline));
    if (got.how == wire::Got::How::enclosed) return enclosed_;
    std::vector<std::byte> bytes(got.length);
    if (got.how == wire::Got::How::descriptor) {
      OFP_ASSIGN(const Fd fd, end_.take_descriptor(ticket_, deadline));
      const ssize_t read = pread(fd.get(), bytes.data(), bytes.size(), 0);
      std::vector<std::byte> release;
      wire::encode(wire::Release{got.lease}, release);
      OFP_TRY(end_.post(wire::EntryKind::release, release, deadline));
      if (read != static_cast<ssize_t>(bytes.size()))
        return fail(Error::io, "{} of {} bytes were read", read, bytes.size());
      return bytes;
    }
    OFP_ASSIGN(const wire::RegionId segment, end_.allocate(std::max<std::uint64_t>(got.length, 1), deadline));
    const auto pushed = ask(wire::EntryKind::push_lease, wire::PushLease{got.lease, segment}, deadline);
    const auto from = end_.segment(segment).begin();
    if (pushed) std::copy(from, from + static_cast<std::ptrdiff_t>(got.length), bytes.begin());
    end_.free(segment);
    if (!pushed) return tl::unexpected(pushed.error());
    return bytes;
  }

  // The steps of a get, for many at once: each request returns its ticket, and `answer` waits for what came of it.
  Result<std::uint64_t> want(const std::string& row_key, const std::string& column_key, TimeNs deadline) {
    return begin(wire::EntryKind::pool_get, wire::PoolGet{pool_, row_key, column_key, 0}, deadline);
  }
  Result<std::uint64_t> want_pushed(std::uint64_t lease, wire::RegionId segment, TimeNs deadline) {
    return begin(wire::EntryKind::push_lease, wire::PushLease{lease, segment}, deadline);
  }
  Result<wire::Got> answer(std::uint64_t ticket, TimeNs deadline) {
    std::optional<channel::Reply> reply;
    while (!(reply = end_.take_reply(ticket))) {
      if (end_.now() >= deadline) return fail(Error::timeout, "request {} was not answered", ticket);
      OFP_TRY(end_.wait_reply({&ticket, 1}, deadline));
    }
    OFP_ASSIGN(const channel::Reply passed, channel::unfailed(std::move(*reply)));
    return got_of(passed);
  }

  [[nodiscard]] channel::HostEnd& end() noexcept { return end_; }
  [[nodiscard]] std::uint32_t stream() const noexcept { return stream_; }

 private:
  template <class Message>
  Result<wire::Got> ask(wire::EntryKind kind, const Message& message, TimeNs deadline) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    OFP_ASSIGN(const channel::Reply reply, end_.call(kind, payload, deadline));
    return got_of(reply);
  }
  template <class Message>
  Result<std::uint64_t> begin(wire::EntryKind kind, const Message& message, TimeNs deadline) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    return end_.ask(kind, payload, deadline);
  }
  Result<wire::Got> got_of(const channel::Reply& reply) {
    ticket_ = reply.ticket;
    wire::Got got{};
    OFP_TRY(wire::decode(reply.payload, got));
    enclosed_.assign(got.bytes.begin(), got.bytes.end());
    got.bytes = enclosed_;
    return got;
  }

  std::shared_ptr<link::LoopbackFabric> fabric_;
  channel::HostEnd end_;
  std::uint32_t stream_ = 0;
  std::uint64_t charge_base_ = 0;
  std::string pool_;
  std::uint64_t ticket_ = 0;         // of the last answer
  std::vector<std::byte> enclosed_;  // in it

  struct Set {
    std::uint64_t rows = 0;
    std::vector<channel::BufferRef> buffers;
    bool operator==(const Set& other) const {
      return rows == other.rows && std::ranges::equal(buffers, other.buffers, [](const auto& a, const auto& b) {
               return a.region == b.region && a.generation == b.generation && a.offset == b.offset &&
                      a.length == b.length;
             });
    }
  };
  std::map<std::uint32_t, Set> sets_;
  std::uint64_t sends_ = 0;
};

}  // namespace offpath::sim
