#include "host_program.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/clock.h"

namespace offpath::bench {
namespace {

constexpr TimeNs stuck_ns = 60 * second_ns;  // longer than any operation of any benchmark

#define OFP_CALL(call)                                              \
  do {                                                              \
    ofp_error error{};                                              \
    if ((call) != OFP_OK) return tl::unexpected(failure_of(error)); \
  } while (false)

}  // namespace

Failure failure_of(const ofp_error& error) {
  const std::string text = error.message;
  return {Error(error.code), text.empty() ? ofp_code_name(error.code) : text};
}

Result<Channel> Channel::connect(const std::string& address) {
  ofp_connect_options options{};
  options.struct_bytes = sizeof options;
  options.name = "offpath-bench";
  ofp_channel* channel = nullptr;
  OFP_CALL(ofp_connect(address.empty() ? nullptr : address.c_str(), &options, &channel, &error));
  return Channel(channel);
}

Channel::~Channel() {
  if (channel_ != nullptr) ofp_close(channel_);
}

Result<ofp_channel_info> Channel::info() const {
  ofp_channel_info info{};
  info.struct_bytes = sizeof info;
  OFP_CALL(ofp_channel_info_get(channel_, &info, &error));
  return info;
}

Result<Stream> Stream::open(const Channel& channel, const StreamSpec& spec) {
  std::vector<std::string> names;
  for (std::uint32_t c = 0; c < spec.columns; ++c) names.push_back(fmt::format("column{}", c));
  std::vector<ofp_column> columns;
  for (const std::string& name : names) {
    columns.push_back({.name = name.c_str(), .format = spec.format, .stride_bytes = 0});
  }
  ofp_stream_options options{};
  options.struct_bytes = sizeof options;
  options.destination = spec.destination;
  options.rows_max = spec.rows_max;
  options.keep = spec.keep;
  ofp_stream* stream = nullptr;
  OFP_CALL(ofp_stream_open_columns(channel.get(), spec.name.c_str(), columns.data(), spec.columns, &options, &stream,
                                   &error));
  return Stream(channel.get(), stream, spec.name);
}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  // Also drops its frames: the next stream of a benchmark starts with this stream's memory.
  ofp_stream_close(stream_, second_ns, nullptr);
  ofp_pool_drop(channel_, ("local:/" + name_).c_str(), nullptr, nullptr, second_ns, nullptr, nullptr);
}

Result<Stream::Posted> Stream::post(std::span<const void* const> columns, std::uint64_t rows) {
  char key[24];
  *fmt::format_to(key, "{}", sends_++) = '\0';
  Posted posted;
  ofp_error error{};
  posted.entered_ticks = ticks();
  const int code = ofp_send_columns(stream_, columns.data(), rows, key, "bench", OFP_SEND_WAIT, &posted.ticket, &error);
  posted.left_ticks = ticks();
  if (code != OFP_OK) return tl::unexpected(failure_of(error));
  return posted;
}

Result<std::uint64_t> Stream::spin(std::uint64_t ticket, bool stored) {
  std::uint64_t seen;
  const TimeNs begin_ns = monotonic_ns();
  for (std::uint32_t looks = 1; (stored ? ofp_stored(stream_) : ofp_pulled(stream_)) < ticket; ++looks) {
    if (looks % 65536 != 0) continue;
    OFP_CALL(ofp_poll(channel_, &error));
    if (monotonic_ns() - begin_ns > stuck_ns) {
      return fail(Error::timeout, "ticket {} of {} was not {} within {} s", ticket, name_, stored ? "stored" : "pulled",
                  stuck_ns / second_ns);
    }
  }
  seen = ticks();
  if (stored) {
    OFP_CALL(ofp_wait_stored(stream_, ticket, 0, &error));
  } else {
    OFP_CALL(ofp_wait_pulled(stream_, ticket, 0, &error));
  }
  return seen;
}

Result<std::uint64_t> Stream::spin_pulled(std::uint64_t ticket) { return spin(ticket, false); }
Result<std::uint64_t> Stream::spin_stored(std::uint64_t ticket) { return spin(ticket, true); }

Status Stream::wait_stored(std::uint64_t ticket) {
  OFP_CALL(ofp_wait_stored(stream_, ticket, stuck_ns, &error));
  return {};
}

Status wake_agent(const Channel& channel) {
  std::int64_t seen_ns = 0, returned_ns = 0;
  OFP_CALL(ofp_probe(channel.get(), second_ns, &seen_ns, &returned_ns, &error));
  return {};
}

Result<Announcement> Announcement::make(const Channel& channel, const void* base, std::uint64_t length_bytes) {
  Announcement announcement;
  OFP_CALL(ofp_range_announce(channel.get(), base, length_bytes, &announcement.range_, &error));
  return announcement;
}

Announcement::~Announcement() {
  if (range_ != nullptr) ofp_range_retire(range_, second_ns, nullptr);
}

Result<Sources> Sources::make(const Channel& channel, std::uint64_t column_bytes, std::uint32_t columns,
                              std::uint64_t working_set_bytes, std::uint64_t misalign_bytes) {
  Sources sources;
  OFP_ASSIGN(sources.buffers_,
             RotatedBuffers::make(column_bytes, std::max(working_set_bytes, column_bytes * columns), misalign_bytes));
  sources.columns_.resize(columns);
  const Pages& pages = sources.buffers_.whole();
  OFP_ASSIGN(sources.announcement_, Announcement::make(channel, pages.data(), pages.size()));
  return sources;
}

std::span<const void* const> Sources::next() {
  for (const void*& column : columns_) column = buffers_.next();
  return columns_;
}

}  // namespace offpath::bench
