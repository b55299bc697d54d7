// Records: pulled from their program when a round begins, or made by the agent itself (wire/areas/exchange_area.h).
#include <algorithm>
#include <utility>

#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"
#include "wire/region.h"

namespace offpath::exchange {

namespace {

constexpr unsigned torn_max = 3;  // reads of a record that its program was writing
constexpr std::uint64_t line_bytes = sizeof(wire::PublishLine);
constexpr std::uint64_t first_read_bytes = 4096;  // of a record, with its head

}  // namespace

bool ExchangeService::set_record(std::string_view name, Bytes record, TimeNs made_at) {
  for (auto& one : exchanges_) {
    if (one->settings.source.empty() || one->settings.options.name != name) continue;
    auto bytes = std::make_shared<const std::vector<std::byte>>(record.begin(), record.end());
    one->record = {bytes, *bytes};
    one->record_made_at = made_at;
    return true;
  }
  return false;
}

void ExchangeService::begin_read(One& one, TimeNs now, service::Effects& out) {
  if (one.publisher == 0) return give_local(one, now, out);
  Subscriber& subscriber = one.subscribers.at(one.publisher);
  if (subscriber.read != Subscriber::Read::idle) {
    subscriber.read_again = true;
    return;
  }
  subscriber.torn = 0;
  subscriber.read_before_at = subscriber.read_at;
  subscriber.read_at = now;
  if (!subscriber.room)
    subscriber.room =
        std::make_shared<std::vector<std::byte>>(line_bytes + wire::record_slot_bytes(subscriber.record_bytes));
  read_line(subscriber, out);
}

void ExchangeService::read_line(Subscriber& subscriber, service::Effects& out) {
  subscriber.read = Subscriber::Read::line;
  pull(subscriber, 0, line_bytes, 0, out);
}

void ExchangeService::pull(const Subscriber& subscriber, std::uint64_t offset, std::uint64_t length,
                           std::uint64_t room_at, service::Effects& out) {
  const std::uint64_t token = next_token();
  wire::BufferRef from{};
  from.region = subscriber.area.region;
  from.generation = subscriber.area.generation;
  from.offset = subscriber.area.offset + offset;
  from.length = length;
  Transfer transfer{};
  transfer.kind = Transfer::Kind::read;
  transfer.subscriber = subscriber.number;
  transfer.bytes = subscriber.room;
  transfers_.emplace(token, std::move(transfer));
  service::pull(out, subscriber.channel, token, from, subscriber.room->data() + room_at);
}

void ExchangeService::give_local(One& one, TimeNs now, service::Effects& out) {
  ExchangeEffects effects;
  one.exchange->on_local(one.record, std::max<TimeNs>(now - one.record_made_at, 0), now, effects);
  carry_out(one, effects, now, out);
}

void ExchangeService::on_read(One& one, Subscriber& subscriber, const Status& status, TimeNs now,
                              service::Effects& out) {
  const std::uint64_t slot_bytes = wire::record_slot_bytes(subscriber.record_bytes);
  bool done = !status;
  if (status && subscriber.read == Subscriber::Read::line) {
    subscriber.reading = load<wire::PublishLine>(subscriber.room->data()).number;
    done = subscriber.reading == 0 || subscriber.reading == subscriber.record_number;  // nothing new
    if (!done) {
      subscriber.read = Subscriber::Read::slot;
      pull(subscriber, wire::record_slot_at(subscriber.reading, subscriber.record_bytes),
           std::min(slot_bytes, first_read_bytes), line_bytes, out);
    }
  } else if (status) {
    const auto head = load<wire::RecordHead>(subscriber.room->data() + line_bytes);
    const std::uint64_t there = std::min(slot_bytes, first_read_bytes), wanted = sizeof head + head.length;
    if (subscriber.read == Subscriber::Read::slot && head.number == subscriber.reading &&
        head.length <= subscriber.record_bytes && wanted > there) {
      subscriber.read = Subscriber::Read::rest;
      pull(subscriber, wire::record_slot_at(subscriber.reading, subscriber.record_bytes) + there, wanted - there,
           line_bytes + there, out);
    } else {
      done = take_slot(one, subscriber, now, out);
    }
  }
  if (!done) return;
  subscriber.read = Subscriber::Read::idle;
  const bool again = std::exchange(subscriber.read_again, false);
  give_local(one, now, out);
  if (again && one.publisher != 0 && one.exchange->is_open()) begin_read(one, now, out);
}

// True when the reading is over: the record is complete, or was torn too often and the previous one stands.
bool ExchangeService::take_slot(One& one, Subscriber& subscriber, TimeNs now, service::Effects& out) {
  const auto head = load<wire::RecordHead>(subscriber.room->data() + line_bytes);
  const bool fits = head.number == subscriber.reading && head.length <= subscriber.record_bytes;
  const Bytes record = fits ? Bytes(*subscriber.room).subspan(line_bytes + sizeof head, head.length) : Bytes();
  if (!fits || wire::record_crc(head.number, record) != head.crc32c) {
    ++one.torn;
    if (++subscriber.torn >= torn_max) return true;
    read_line(subscriber, out);
    return false;
  }
  auto bytes = std::make_shared<const std::vector<std::byte>>(record.begin(), record.end());
  one.record = {bytes, *bytes};
  ++one.records_pulled;
  subscriber.record_number = head.number;
  subscriber.record_seen_at = now;
  if (Grants* grants = one.exchange->grants(); grants != nullptr) {
    const auto& shown = subscriber.shown_grants;
    const auto at = std::ranges::find(shown, head.view_number, &Subscriber::ShownGrant::view);
    if (at != shown.end()) grants->on_user_goes_by(at->leader_nonce, at->number);
  }
  // If the program's clock is unrelated, the record may be as old as the last look that did not see it.
  const bool same_clock =
      channels_.at(subscriber.channel).same_clock && head.published_at_ns <= now && head.published_at_ns > 0;
  one.record_made_at = same_clock ? head.published_at_ns : subscriber.read_before_at;
  return true;
}

}  // namespace offpath::exchange
