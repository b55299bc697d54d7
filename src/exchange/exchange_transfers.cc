// Transfers between the service and programs' areas: records, pulled when a round begins or made by the agent itself
// (record_reader.h), and views (view_layout.h), pushed to each program, the slot first, then the line.
#include <algorithm>
#include <utility>

#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"
#include "exchange/view_layout.h"

namespace offpath::exchange {

// ---- records

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
  if (const auto first = subscriber.records.begin(now)) pull(subscriber, *first, out);
}

void ExchangeService::pull(const Subscriber& subscriber, const RecordReader::Pull& what, service::Effects& out) {
  const std::uint64_t token = next_token();
  wire::BufferRef from{};
  from.region = subscriber.area.region;
  from.generation = subscriber.area.generation;
  from.offset = subscriber.area.offset + what.offset;
  from.length = what.length;
  Transfer transfer{};
  transfer.kind = Transfer::Kind::read;
  transfer.subscriber = subscriber.number;
  transfer.bytes = subscriber.records.room();
  transfers_.emplace(token, std::move(transfer));
  service::pull(out, subscriber.channel, token, from, subscriber.records.room()->data() + what.room_at);
}

void ExchangeService::give_local(One& one, TimeNs now, service::Effects& out) {
  ExchangeEffects effects;
  one.exchange->on_local(one.record, std::max<TimeNs>(now - one.record_made_at, 0), now, effects);
  carry_out(one, effects, now, out);
}

void ExchangeService::on_read(One& one, Subscriber& subscriber, const Status& status, TimeNs now,
                              service::Effects& out) {
  const RecordReader::Step step = subscriber.records.on_read(status, now);
  one.torn += step.torn;
  if (step.next) return pull(subscriber, *step.next, out);
  if (step.record) take_record(one, subscriber, *step.record, now);
  give_local(one, now, out);
  if (step.again && one.publisher != 0 && one.exchange->is_open()) begin_read(one, now, out);
}

void ExchangeService::take_record(One& one, const Subscriber& subscriber, const RecordReader::Record& record,
                                  TimeNs now) {
  one.record = {record.bytes, *record.bytes};
  ++one.records_pulled;
  if (Grants* grants = one.exchange->grants(); grants != nullptr) {
    const auto& shown = subscriber.shown_grants;
    const auto at = std::ranges::find(shown, record.view_number, &Subscriber::ShownGrant::view);
    if (at != shown.end()) grants->on_user_goes_by(at->leader_nonce, at->number);
  }
  // If the program's clock is unrelated, the record may be as old as the last look that did not see it.
  const bool same_clock =
      channels_.at(subscriber.channel).same_clock && record.published_at_ns <= now && record.published_at_ns > 0;
  one.record_made_at = same_clock ? record.published_at_ns : subscriber.records.not_before();
}

// ---- views

void ExchangeService::show(One& one, Subscriber& subscriber, ViewPtr view, TimeNs now, service::Effects& out) {
  if (subscriber.push != Subscriber::Push::idle) {
    subscriber.next = std::move(view);  // any earlier waiting view is older
    return;
  }
  ++subscriber.view_number;
  if (const Grants* grants = one.exchange->grants(); grants != nullptr && subscriber.publishes) {
    subscriber.shown_grants.push_back({subscriber.view_number, grants->held_nonce(), grants->held(now).number});
    if (subscriber.shown_grants.size() > shown_grants_max) subscriber.shown_grants.pop_front();
  }
  subscriber.push = Subscriber::Push::slot;
  const std::uint64_t token = next_token();
  Transfer transfer{};
  transfer.kind = Transfer::Kind::push;
  transfer.subscriber = subscriber.number;
  transfer.bytes = std::make_shared<std::vector<std::byte>>(lay_out_view(
      view_head(one, subscriber, *view, now), *view, one.settings.options.reductions, subscriber.view_bytes));
  push(out, subscriber.channel, token, subscriber.area.region,
       subscriber.area.offset +
           wire::view_slot_at(subscriber.view_number, subscriber.record_bytes, subscriber.view_bytes),
       *transfer.bytes);
  transfers_.emplace(token, std::move(transfer));
}

void ExchangeService::on_push(One& one, Subscriber& subscriber, const Status& status, TimeNs now,
                              service::Effects& out) {
  if (!status) {
    subscriber.push = Subscriber::Push::idle;  // the channel ends, or the area differs from its description
    return;
  }
  if (subscriber.push == Subscriber::Push::slot) {
    subscriber.push = Subscriber::Push::line;
    const std::uint64_t token = next_token();
    Transfer transfer{};
    transfer.kind = Transfer::Kind::push;
    transfer.subscriber = subscriber.number;
    transfer.bytes = std::make_shared<std::vector<std::byte>>(sizeof(wire::ViewLine));
    wire::ViewLine line{};
    line.number = subscriber.view_number;
    store(transfer.bytes->data(), line);
    // Only the number: one aligned word.
    push(out, subscriber.channel, token, subscriber.area.region, subscriber.area.offset + sizeof(wire::PublishLine),
         Bytes(*transfer.bytes).first(sizeof line.number));
    transfers_.emplace(token, std::move(transfer));
    return;
  }
  subscriber.push = Subscriber::Push::idle;
  subscriber.shown = subscriber.view_number;
  ++one.views_pushed;
  std::erase_if(subscriber.waiters, [&](const Waiter& each) {
    if (subscriber.shown <= each.after) return false;
    service::answer(out, subscriber.channel, each.ticket, subscriber.shown);
    return true;
  });
  if (subscriber.next) show(one, subscriber, std::exchange(subscriber.next, nullptr), now, out);
}

wire::ViewHead ExchangeService::view_head(const One& one, const Subscriber& subscriber, const View& view,
                                          TimeNs now) const {
  wire::ViewHead head{};
  head.number = subscriber.view_number;
  head.epoch = view.epoch;
  head.took_ns = view.given_at - view.began_at;
  head.deadline_ns = one.settings.options.deadline_ns;
  head.present = view.present;
  head.expected = view.expected;
  head.leader = view.leader;
  head.tree = one.exchange->topology().fingerprint();
  head.figure_members = view.reduced_members;
  head.flags = (view.whole ? wire::view_whole : 0) | (view.leader == one.exchange->self() ? wire::view_leads : 0);
  head.grant_leader = nobody;
  const Grants* grants = one.exchange->grants();
  if (grants == nullptr || !subscriber.publishes || subscriber.records.number() == 0) return head;
  const Grants::Held held = grants->held(now);
  // Counted from the moment the record was seen, which is later than its publication (grants.h).
  const TimeNs valid = held.until - subscriber.records.seen_at();
  head.grant_leader = held.leader;
  head.grant_number = held.number;
  if (now < held.until && valid > 0) {
    head.grant_amount = held.amount;
    head.grant_record = subscriber.records.number();
    head.grant_valid_ns = valid;
  }
  return head;
}

}  // namespace offpath::exchange
