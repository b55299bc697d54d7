#include "telemetry/gauges.h"

#include <algorithm>

#include "wire/messages/exchange_messages.h"
#include "wire/messages/message_kinds.h"

namespace offpath::exchange {

void Gauges::on_request(std::uint64_t channel, const std::string& program, const channel::Entry& request, TimeNs now,
                        service::Effects& effects) {
  const bool opens = static_cast<wire::EntryKind>(request.kind) == wire::EntryKind::gauges_open;
  service::answer(effects, channel, request.ticket,
                  opens ? open(channel, program, request, now) : close(channel, request));
}

Result<std::uint64_t> Gauges::open(std::uint64_t channel, const std::string& program, const channel::Entry& request,
                                   TimeNs now) {
  wire::GaugesOpen asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  auto schema = decode_schema(asked.schema);
  if (!schema) return fail(Error::schema, "gauges '{}': {}", asked.name, schema.error().message);
  if (const std::size_t bytes = wire::gauges_bytes(schema->fields.size());
      asked.memory.length != bytes || asked.memory.stride_bytes != 0)
    return fail(Error::invalid, "gauges '{}' have {} values, which take {} bytes; the request names {}", asked.name,
                schema->fields.size(), bytes, asked.memory.length);
  const auto own =
      std::ranges::count_if(readings_, [&](const auto& each) { return each.second.set.channel == channel; });
  if (static_cast<std::size_t>(own) >= of_channel_max)
    return fail(Error::too_large, "this program has {} sets of gauges, {} are allowed", own, of_channel_max);
  const std::uint64_t number = next_number_++;
  Reading& reading = readings_[number];
  reading.set.channel = channel;
  reading.set.number = number;
  reading.set.program = program;
  reading.set.newest.schema = schema->id();
  reading.set.newest.producer = asked.name.empty() ? program : std::string(asked.name);
  reading.set.newest.producer.resize(std::min(reading.set.newest.producer.size(), name_bytes_max));
  reading.set.schema = std::move(*schema);
  reading.set.newest.values.reset(reading.set.schema.fields.size());
  reading.spare = reading.set.newest.values;
  reading.memory = asked.memory;
  reading.bytes.resize(asked.memory.length);
  reading.next_at = now;
  due_ = std::min(due_, now);
  return number;
}

Result<std::uint64_t> Gauges::close(std::uint64_t channel, const channel::Entry& request) {
  wire::GaugesClose asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  const auto found = readings_.find(asked.number);
  if (found == readings_.end() || found->second.set.channel != channel)
    return fail(Error::not_found, "there are no gauges {} of this program", asked.number);
  // A read may write to its bytes until it ends.
  if (found->second.step != Step::waiting)
    found->second.closing = true;
  else
    readings_.erase(found);
  return asked.number;
}

// Channels finish their pulls before they end, so nothing writes to these bytes any more.
void Gauges::on_channel_closed(std::uint64_t channel) {
  std::erase_if(readings_, [&](const auto& each) { return each.second.set.channel == channel; });
}

void Gauges::on_time(TimeNs now, service::Effects& effects) {
  due_ = never;
  for (auto& [number, reading] : readings_) {
    if (reading.step != Step::waiting) continue;
    if (now >= reading.next_at)
      begin(reading, now, effects);
    else
      due_ = std::min(due_, reading.next_at);
  }
}

void Gauges::begin(Reading& reading, TimeNs now, service::Effects& effects) {
  reading.step = Step::first_lap;
  reading.looks = 0;
  reading.began_at = now;
  reading.next_at = std::max(deadline_after(reading.next_at, interval_ns_), now);  // missed intervals are not repeated
  look(reading, effects);
}

void Gauges::look(const Reading& reading, service::Effects& effects) {
  wire::BufferRef from = reading.memory;
  auto* to = const_cast<std::byte*>(reading.bytes.data());
  if (reading.step != Step::values) {
    static_assert(offsetof(wire::GaugesHead, lap) == 0);
    from.length = sizeof reading.first_lap;
    to = reinterpret_cast<std::byte*>(
        const_cast<std::uint64_t*>(reading.step == Step::first_lap ? &reading.first_lap : &reading.second_lap));
  }
  service::pull(effects, reading.set.channel, service::token_of(service::ServiceId::gauges, reading.set.number), from,
                to);
}

void Gauges::end(Reading& reading, TimeNs now) {
  reading.step = Step::waiting;
  if (interval_ns_ == 0) reading.next_at = now;
  due_ = std::min(due_, reading.next_at);
}

void Gauges::on_transfer(std::uint64_t token, const Status& status, TimeNs now, std::int64_t real_ns,
                         service::Effects& effects) {
  const auto found = readings_.find(service::number_of(token));
  if (found == readings_.end()) return;
  Reading& reading = found->second;
  if (reading.closing) {
    readings_.erase(found);
    return;
  }
  if (!status) {
    ++reading.set.counters.failures;
    return end(reading, now);
  }
  switch (reading.step) {
    case Step::waiting:
      OFP_ASSERT(false);
    case Step::first_lap:
      reading.step = Step::values;
      break;
    case Step::values:
      reading.step = Step::second_lap;
      break;
    case Step::second_lap:
      if (reading.first_lap == reading.second_lap && reading.first_lap % 2 == 0) {
        if (!take(reading, now, real_ns)) ++reading.set.counters.failures;
        return end(reading, now);
      }
      ++reading.set.counters.torn;
      if (++reading.looks == looks_max) return end(reading, now);
      // The last lap is the first lap of the next look.
      reading.first_lap = reading.second_lap;
      reading.step = reading.first_lap % 2 == 0 ? Step::values : Step::first_lap;
      break;
  }
  look(reading, effects);
}

// False: the program's description of its gauges is invalid.
bool Gauges::take(Reading& reading, TimeNs now, std::int64_t real_ns) {
  Set& set = reading.set;
  const auto head = load<wire::GaugesHead>(reading.bytes.data());
  const std::size_t count = set.schema.fields.size();
  if (head.count != count) return false;
  const std::byte *presence = reading.bytes.data() + sizeof head,
                  *values = reading.bytes.data() + wire::gauges_values_at(count);
  for (std::size_t i = 0; i < count; ++i) {
    if ((load<std::uint64_t>(presence + i / 64 * 8) >> i % 64 & 1) != 0)
      reading.spare.set_bits(i, load<std::uint64_t>(values + 8 * i));
    else
      reading.spare.set_missing(i);
  }
  std::swap(set.newest.values, reading.spare);
  ++set.newest.sequence;
  set.newest.receive_ns = real_ns;
  set.newest.source_ns = head.read_ns != 0 ? head.read_ns : real_ns;
  set.newest_at = now;
  set.writer_cpu_ns = head.cpu_ns;
  ++set.counters.samples;
  set.counters.read_ns += static_cast<std::uint64_t>(now - reading.began_at);
  return true;
}

std::vector<const Gauges::Set*> Gauges::sets() const {
  std::vector<const Set*> sets;
  for (const auto& [number, reading] : readings_) sets.push_back(&reading.set);
  return sets;
}

}  // namespace offpath::exchange
