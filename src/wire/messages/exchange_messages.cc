#include "wire/messages/exchange_messages.h"

#include "wire/limits.h"
#include "wire/messages/message_fields.h"

namespace offpath::wire {
namespace {

void fields(auto& way, Is<GaugesOpen> auto& m) {
  way.begins("opening of gauges");
  object_at(way, m.memory);
  way.text(m.name, name_bytes_max, "the gauges' name");
  way.bytes(m.schema);
}

void fields(auto& way, Is<GaugesClose> auto& m) {
  way.begins("end of gauges");
  way(m.number);
}

void fields(auto& way, Is<ExchangeOpen> auto& m) {
  way.begins("opening of an exchange");
  way.text(m.name, name_bytes_max, "the exchange's name");
  way(m.publishes, m.record_bytes, m.view_bytes);
  object_at(way, m.area);
  way.bytes(m.fields);
}

void fields(auto& way, Is<ExchangeInfo> auto& m) {
  way.begins("question about an exchange");
  way(m.number);
  object_at(way, m.room);
}

void fields(auto& way, Is<ExchangeWait> auto& m) {
  way.begins("wait for a view");
  way(m.number, m.after, m.wait_ns);
}

void fields(auto& way, Is<ExchangeGrant> auto& m) {
  way.begins("grants");
  way(m.number);
  way.each(m.targets, [&way](auto& target) { way(target.member, target.zero, target.amount); });
}
Status check(const ExchangeGrant& m) {
  if (m.targets.size() > exchange_targets_max)
    return fail(Error::too_large, "grants: {} of them, at most {} are allowed at a time", m.targets.size(),
                exchange_targets_max);
  return {};
}

void fields(auto& way, Is<ExchangeClose> auto& m) {
  way.begins("end of an exchange");
  way(m.number);
}

void fields(auto& way, Is<PeerExchange> auto& m) {
  way.begins("parcel of a member");
  way(m.tag, m.parcel, m.total_bytes, m.offset);
  object_at(way, m.part);
  way.bytes(m.bytes);
}
Status check(const PeerExchange& m) {
  const std::uint64_t length = m.bytes.empty() ? m.part.length : m.bytes.size();
  std::uint64_t end = 0;
  if (length == 0 || length > exchange_part_max || m.bytes.size() > exchange_enclosed_max ||
      !checked_add(m.offset, length, end) || end > m.total_bytes)
    return fail(Error::protocol, "parcel of a member: {} bytes from {} on, of {}", length, m.offset, m.total_bytes);
  return {};
}

}  // namespace

OFFPATH_EXCHANGE_MESSAGES(OFFPATH_DEFINE_CODING)

}  // namespace offpath::wire
