#include "wire/messages/stream_messages.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "wire/channel_layout.h"
#include "wire/limits.h"
#include "wire/messages/message_fields.h"
#include "wire/slot.h"

namespace offpath::wire {
namespace {

constexpr std::array<std::string_view, destinations> destination_names = {
    "native", "arrays", "record-batch", "ipc", "ipc-page", "c-abi", "agent-serialise", "serialised"};

constexpr std::array<std::string_view, compressions> compression_names = {"none", "lz4", "zstd"};

static_assert(2 * key_bytes_max + buffers_max * (sizeof(BufferRef) + sizeof(Node)) + 1024 <= entry_bytes_max);

void fields(auto& way, Is<AnnounceRange> auto& m) {
  way.begins("announcement");
  way(m.range, m.generation, m.base, m.length, m.key);
}
Status check(const AnnounceRange& m) {
  if (is_segment(m.range)) return fail(Error::protocol, "announcement: {:#x} is a segment's number", m.range);
  return {};
}

void fields(auto& way, Is<RetireRange> auto& m) {
  way.begins("withdrawal");
  way(m.range, m.generation);
}

void fields(auto& way, Is<OpenStream> auto& m) {
  way.begins("stream opening");
  way(m.stream);
  way.choice(m.destination, Destination::serialised, "destination");
  way.choice(m.compression, Compression::zstd, "compression");
  way(m.rows_max, m.keep, m.ranks, m.rank);
  way.text(m.name, name_bytes_max, "the stream's name");
  way.text(m.pool, pool_bytes_max, "the pool's name");
  way.bytes(m.schema);
}

void fields(auto& way, Is<GrowStream> auto& m) {
  way.begins("growth of a stream");
  way(m.stream, m.rows_max);
}

void fields(auto& way, Is<CloseStream> auto& m) {
  way.begins("stream closing");
  way(m.stream);
}

static_assert(streams_max_max <= 1u << 16 && buffers_max < 1u << 16);
void fields(auto& way, Is<Send> auto& m) {
  way.begins("send");
  SendHead head{static_cast<std::uint16_t>(m.stream),
                static_cast<std::uint16_t>(m.nodes.size()),
                static_cast<std::uint16_t>(m.buffers.size()),
                static_cast<std::uint16_t>(m.set),
                static_cast<std::uint32_t>(m.row_key.size()),
                static_cast<std::uint32_t>(m.column_key.size()),
                m.charge,
                m.rows};
  way.plain(head);
  way.counted(m.row_key, head.row_key_bytes);
  way.counted(m.column_key, head.column_key_bytes);
  way.counted(m.buffers, head.buffers);
  way.counted(m.nodes, head.nodes);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(m)>>) {
    m.stream = head.stream;
    m.set = head.set;
    m.charge = head.charge;
    m.rows = head.rows;
  }
}
Status check(const Send& m) {
  for (const auto& [key, name] : {std::pair(m.row_key, the_row_key), std::pair(m.column_key, the_column_key)})
    if (key.size() > key_bytes_max)
      return fail(Error::too_large, "send: {} has {} bytes, at most {} are allowed", name, key.size(), key_bytes_max);
  if (m.buffers.size() > buffers_max)
    return fail(Error::too_large, "a send of {} buffers, at most {} are allowed", m.buffers.size(), buffers_max);
  if (m.set > sets_max) return fail(Error::invalid, "a send names buffer set {}, the last one is {}", m.set, sets_max);
  if (m.set != 0 && !m.nodes.empty()) return fail(Error::invalid, "a send with nodes names buffer set {}", m.set);
  if (m.set != 0 && m.buffers.size() > set_buffers_max)
    return fail(Error::too_large, "buffer set {} would have {} buffers, at most {} are allowed", m.set,
                m.buffers.size(), set_buffers_max);
  return {};
}

}  // namespace

namespace {

void fields(auto& way, Is<Move> auto& m) {
  way.begins("move");
  way(m.stream, m.update, m.charge, m.object_bytes);
  way.text(m.row_key, key_bytes_max, the_row_key);
  way.text(m.column_key, key_bytes_max, the_column_key);
  auto pieces = static_cast<std::uint32_t>(m.pieces.size());
  way(pieces);
  way.counted(m.pieces, pieces);
}

void fields(auto& way, Is<StepEnd> auto& m) {
  way.begins("end of step");
  way(m.stream);
  way.text(m.row_key, key_bytes_max, the_row_key);
}

void fields(auto& way, Is<WakeAt> auto& m) {
  way.begins("wake request");
  way(m.stream);
  way.choice(m.word, WakeWord::now, "word");
  way(m.value);
}

void fields(auto& way, Is<NeedCredit> auto& m) {
  way.begins("credit request");
  way(m.stream, m.total);
}

void fields(auto& way, Is<WhyWaits> auto& m) {
  way.begins("question about a wait");
  way(m.stream, m.ticket);
}

}  // namespace

std::string_view destination_name(Destination destination) noexcept {
  return destination_names[static_cast<std::size_t>(destination)];
}

Result<Destination> parse_destination(std::string_view name) {
  for (std::size_t i = 0; i < destination_names.size(); ++i)
    if (destination_names[i] == name) return static_cast<Destination>(i);
  return fail(Error::invalid, "destination \"{}\" is unknown; known are {}", name, fmt::join(destination_names, ", "));
}

std::string_view compression_name(Compression compression) noexcept {
  return compression_names[static_cast<std::size_t>(compression)];
}

Result<Compression> parse_compression(std::string_view name) {
  for (std::size_t i = 0; i < compression_names.size(); ++i)
    if (compression_names[i] == name) return static_cast<Compression>(i);
  return fail(Error::invalid, "compression \"{}\" is unknown; known are {}", name, fmt::join(compression_names, ", "));
}

OFFPATH_STREAM_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
