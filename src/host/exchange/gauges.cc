// Gauges: values in a segment of the program, which the agent reads. wire/areas/gauges_layout.h draws the memory.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/connection.h"
#include "wire/areas/gauges_layout.h"
#include "wire/cursor.h"
#include "wire/limits.h"
#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

using namespace offpath;
using namespace offpath::host;

struct ofp_gauges {
  ConnectionPtr connection;
  wire::RegionId region;
  std::byte* memory;
  std::uint32_t count;
  std::uint64_t number;
};

namespace offpath::host {

namespace {

Result<std::uint8_t> index_of(const char* text, std::span<const std::string_view> names, std::string_view what) {
  if (text == nullptr) return std::uint8_t{0};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return static_cast<std::uint8_t>(i);
  std::string all;
  for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return fail(Error::invalid, "a gauge's {} is '{:.64}', which is not one of {}", what, text, all);
}

// As exchange::encode writes schemas; the agent checks names and limits.
Result<std::vector<std::byte>> encode_schema(std::string_view name, std::span<const ofp_gauge> gauges) {
  constexpr std::string_view types[] = {"u64", "i64", "f64"}, kinds[] = {"gauge", "counter"};
  constexpr std::size_t text_bytes_max = 65535;
  std::vector<std::byte> schema;
  wire::Writer writer(schema);
  writer.put_text(name);
  writer.put(static_cast<std::uint32_t>(gauges.size()));
  for (const ofp_gauge& gauge : gauges) {
    OFP_TRY(required(gauge.name, "gauge.name"));
    const std::string_view texts[] = {gauge.name, gauge.unit != nullptr ? gauge.unit : "",
                                      gauge.description != nullptr ? gauge.description : ""};
    for (const std::string_view text : texts)
      if (text.size() > text_bytes_max)
        return fail(Error::too_large, "a text of gauge '{:.64}' has {} bytes", gauge.name, text.size());
    OFP_ASSIGN(const std::uint8_t type, index_of(gauge.type, types, "type"));
    OFP_ASSIGN(const std::uint8_t kind, index_of(gauge.kind, kinds, "kind"));
    writer.put_text(texts[0]);
    writer.put(type);
    writer.put(kind);
    writer.put_text(texts[1]);
    writer.put_text(texts[2]);
  }
  return schema;
}

std::atomic_ref<std::uint64_t> word_at(const ofp_gauges& gauges, std::size_t offset) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(gauges.memory + offset));
}

std::atomic_ref<std::uint64_t> presence_of(const ofp_gauges& gauges, std::uint32_t index) {
  return word_at(gauges, sizeof(wire::GaugesHead) + index / 64 * 8);
}

}  // namespace

}  // namespace offpath::host

extern "C" {

int ofp_gauges_open(ofp_channel* channel, const char* name, const ofp_gauge* list, uint32_t count, ofp_gauges** gauges,
                    ofp_error* error) {
  return guarded(error, [&]() -> Status {
    constexpr TimeNs gauges_open_ns = 5 * second_ns;
    OFP_TRY(required(channel, "channel"));
    OFP_TRY(required(name, "name"));
    OFP_TRY(required(list, "gauges"));
    OFP_TRY(required(gauges, "gauges"));
    *gauges = nullptr;
    OFP_TRY(channel->connection->here());
    if (count == 0 || count > wire::gauges_max)
      return fail(Error::invalid, "{} gauges, 1 to {} are allowed", count, wire::gauges_max);
    if (std::strlen(name) > wire::name_bytes_max)
      return fail(Error::too_large, "the name of gauges has more than {} bytes", wire::name_bytes_max);
    OFP_ASSIGN(const std::vector<std::byte> schema, encode_schema(name, {list, count}));
    if (schema.size() > wire::entry_bytes_max / 2)
      return fail(Error::too_large, "names, units and descriptions of the gauges have {} bytes, at most {} are allowed",
                  schema.size(), wire::entry_bytes_max / 2);
    HostEnd& end = channel->connection->end;
    const TimeNs deadline = deadline_after(end.now(), gauges_open_ns);
    const std::uint64_t bytes = wire::gauges_bytes(count);
    OFP_ASSIGN(const wire::RegionId region, end.allocate(bytes, deadline));
    auto made =
        std::make_unique<ofp_gauges>(ofp_gauges{channel->connection, region, end.segment(region).data(), count, 0});
    word_at(*made, offsetof(wire::GaugesHead, count)).store(count, std::memory_order_relaxed);
    std::vector<std::byte> payload;
    wire::encode(wire::GaugesOpen{{.region = region, .length = bytes}, name, schema}, payload);
    auto reply = end.call(wire::EntryKind::gauges_open, payload, deadline);
    wire::Done done{};
    Status opened = reply ? wire::decode(reply->payload, done) : Status(tl::unexpected<Failure>(reply.error()));
    if (!opened) {
      end.free(region);
      return opened;
    }
    made->number = done.value;
    *gauges = made.release();
    return {};
  });
}

volatile uint64_t* ofp_gauge_slot(ofp_gauges* gauges, uint32_t index) {
  if (gauges == nullptr || index >= gauges->count) return nullptr;
  presence_of(*gauges, index).fetch_or(1ull << index % 64, std::memory_order_relaxed);
  return reinterpret_cast<volatile uint64_t*>(gauges->memory + wire::gauges_values_at(gauges->count) + 8ull * index);
}

void ofp_gauge_clear(ofp_gauges* gauges, uint32_t index) {
  if (gauges == nullptr || index >= gauges->count) return;
  presence_of(*gauges, index).fetch_and(~(1ull << index % 64), std::memory_order_relaxed);
}

int ofp_gauges_write(ofp_gauges* gauges, const uint64_t* values, const uint8_t* present, int64_t read_ns,
                     uint64_t cpu_ns, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(gauges, "gauges"));
    OFP_TRY(required(values, "values"));
    const auto lap = word_at(*gauges, offsetof(wire::GaugesHead, lap));
    const std::uint64_t before = lap.load(std::memory_order_relaxed);
    lap.store(before + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    word_at(*gauges, offsetof(wire::GaugesHead, read_ns))
        .store(static_cast<std::uint64_t>(read_ns), std::memory_order_relaxed);
    word_at(*gauges, offsetof(wire::GaugesHead, cpu_ns)).store(cpu_ns, std::memory_order_relaxed);
    const std::size_t values_at = wire::gauges_values_at(gauges->count);
    for (std::uint32_t first = 0; first < gauges->count; first += 64) {
      std::uint64_t word = 0;
      for (std::uint32_t i = first; i < std::min(first + 64, gauges->count); ++i) {
        if (present == nullptr || present[i] != 0) word |= 1ull << (i - first);
        word_at(*gauges, values_at + 8ull * i).store(values[i], std::memory_order_relaxed);
      }
      presence_of(*gauges, first).store(word, std::memory_order_relaxed);
    }
    lap.store(before + 2, std::memory_order_release);
    return {};
  });
}

void ofp_gauges_close(ofp_gauges* gauges) {
  if (gauges == nullptr) return;
  const std::unique_ptr<ofp_gauges> owned(gauges);
  if (!gauges->connection->here()) return;
  HostEnd& end = gauges->connection->end;
  std::vector<std::byte> payload;
  wire::encode(wire::GaugesClose{gauges->number}, payload);
  // The agent's read that is under way fails, or was before.
  (void)end.call(wire::EntryKind::gauges_close, payload, deadline_after(end.now(), second_ns));
  end.free(gauges->region);
}

}  // extern "C"
