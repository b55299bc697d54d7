// Programs in an exchange: their requests (taking part, its description, views, grants), and transfers between the
// service and their areas: records, pulled when a round begins or made by the agent itself (record_reader.h), and views
// (view_layout.h), pushed to each program, the slot first, then the line.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"
#include "exchange/view_layout.h"
#include "wire/messages/exchange_messages.h"
#include "wire/region.h"

namespace offpath::exchange {

namespace {

std::string text_of(const std::vector<wire::ExchangeField>& fields) {
  std::string text;
  for (const auto& each : fields) text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", each.name, each.type);
  return text;
}

}  // namespace

// ---- requests

Status ExchangeService::open(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects) {
  wire::ExchangeOpen message{};
  OFP_TRY(wire::decode(request.payload, message));
  const auto at =
      std::ranges::find_if(exchanges_, [&](const auto& each) { return each->settings.options.name == message.name; });
  if (at == exchanges_.end()) {
    std::string names;
    for (const auto& each : exchanges_) names += (names.empty() ? ": " : ", ") + each->settings.options.name;
    return fail(Error::not_found, "there is no exchange \"{}\" here{}", message.name,
                names.empty() ? "; configure it with [[exchange]]" : names);
  }
  One& one = **at;
  const uid_t user = channels_.at(channel).user;
  if (user != owner_ && user != 0 && user != one.settings.user)
    return fail(Error::denied, "exchange {} is not open to user {} (exchange.user)", message.name, user);
  if (!one.exchange) return fail(Error::unsupported, "exchange {} does not run here: {}", message.name, one.failure);
  if (one.subscribers.size() >= subscribers_max)
    return fail(Error::too_large, "exchange {} already has {} programs", message.name, one.subscribers.size());
  if (message.publishes && !one.settings.source.empty())
    return fail(Error::exists, "the records of exchange {} come from {}", message.name, one.settings.source);
  if (message.publishes && one.decision)
    return fail(Error::exists, "the records and grants of exchange {} are those of function {} of plug-in {}",
                message.name, one.settings.decides->function, one.settings.decides->plugin);
  if (message.publishes && one.publisher != 0)
    return fail(Error::exists, "another program publishes the records of exchange {}", message.name);
  if (message.record_bytes > one.settings.options.record_bytes)
    return fail(Error::too_large, "records of {} bytes, but exchange {} allows at most {}", message.record_bytes,
                message.name, one.settings.options.record_bytes);
  if (message.view_bytes < sizeof(wire::ViewHead) || message.view_bytes > wire::exchange_view_bytes_max)
    return fail(Error::invalid, "views of {} bytes", message.view_bytes);
  if (!wire::is_segment(message.area.region) ||
      message.area.length < wire::exchange_area_bytes(message.record_bytes, message.view_bytes))
    return fail(Error::invalid, "the area of exchange {} has {} bytes, {} are needed", message.name,
                message.area.length, wire::exchange_area_bytes(message.record_bytes, message.view_bytes));
  if (!message.fields.empty()) {
    OFP_ASSIGN(auto fields, wire::decode_fields(message.fields));
    const auto alike = [](const wire::ExchangeField& a, const wire::ExchangeField& b) {
      return a.name == b.name && a.type == b.type;
    };
    if (!one.fields.empty() && !std::ranges::equal(fields, one.fields, alike))
      return fail(Error::schema, "records of exchange {} have the fields {}, not {}", message.name, text_of(one.fields),
                  text_of(fields));
    if (one.fields.empty()) one.fields = std::move(fields);
  }
  const std::uint64_t number = next_++;
  one.subscribers.emplace(number, Subscriber(number, channel, message, now));
  if (message.publishes) {
    one.publisher = number;
    if (Grants* grants = one.exchange->grants(); grants != nullptr) grants->set_user(true);
    one.tell_deciding(now);
  }
  service::answer(effects, channel, request.ticket, number);
  return {};
}

Status ExchangeService::describe(std::uint64_t channel, const channel::Entry& request, service::Effects& effects) {
  wire::ExchangeInfo message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  const One& one = *found.one;
  wire::ExchangeDescription told;
  for (const Place& each : one.places) told.members.push_back(each.name);
  if (one.exchange) {
    told.self = one.exchange->self();
    told.tree = one.exchange->topology().fingerprint();
  }
  const ExchangeOptions& options = one.settings.options;
  told.record_bytes = options.record_bytes;
  told.interval_ns = options.interval_ns;
  told.deadline_ns = options.deadline_ns;
  told.grant_total = options.grants ? options.grants->total : 0;
  told.topology = shape_text(one.settings.shape);
  told.fields = one.fields;
  for (const Reduction& each : options.reductions) told.reductions.push_back(each.text);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  wire::encode_description(told, *bytes);
  if (bytes->size() > message.room.length || !wire::is_segment(message.room.region)) {
    service::answer(effects, channel, request.ticket, bytes->size());  // the program asks again, with more room
    return {};
  }
  const std::uint64_t token = next_token();
  push(effects, channel, token, message.room.region, message.room.offset, *bytes);
  Transfer transfer{};
  transfer.kind = Transfer::Kind::describe;
  transfer.subscriber = message.number;
  transfer.ticket = request.ticket;
  transfer.bytes = std::move(bytes);
  transfers_.emplace(token, std::move(transfer));
  return {};
}

Status ExchangeService::wait(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                             service::Effects& effects) {
  wire::ExchangeWait message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  Subscriber& subscriber = *found.subscriber;
  if (subscriber.shown > message.after || message.wait_ns == 0) {
    service::answer(effects, channel, request.ticket, subscriber.shown);
    return {};
  }
  if (subscriber.waiters.size() >= waiters_max)
    return fail(Error::too_large, "{} waits for views of one program", subscriber.waiters.size());
  const TimeNs until = deadline_after(now, message.wait_ns);
  subscriber.waiters.push_back({request.ticket, message.after, until});
  waiters_due_ = std::min(waiters_due_, until);
  return {};
}

Status ExchangeService::grant(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                              service::Effects& effects) {
  wire::ExchangeGrant message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  Grants* grants = found.one->exchange ? found.one->exchange->grants() : nullptr;
  if (grants == nullptr)
    return fail(Error::unsupported, "exchange {} has no grants (exchange.grant_total)",
                found.one->settings.options.name);
  if (found.one->decision)
    return fail(Error::exists, "function {} of plug-in {} grants in exchange {}", found.one->settings.decides->function,
                found.one->settings.decides->plugin, found.one->settings.options.name);
  for (const wire::ExchangeTarget& target : message.targets)
    if (target.member >= found.one->places.size())
      return fail(Error::not_found, "a grant for member {}, but exchange {} has {}", target.member,
                  found.one->settings.options.name, found.one->places.size());
  for (const wire::ExchangeTarget& target : message.targets) grants->set_target(target.member, target.amount);
  found.subscriber->sets_targets = true;
  found.one->tell_deciding(now);
  service::answer(effects, channel, request.ticket, grants->may_grant(now) ? std::uint64_t{1} : 0);
  return {};
}

Status ExchangeService::end(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                            service::Effects& effects) {
  wire::ExchangeClose message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  remove(*found.one, message.number, now, effects);
  service::answer(effects, channel, request.ticket, 0);
  return {};
}

// Grants that a program requested end with it.
void ExchangeService::remove(One& one, std::uint64_t number, TimeNs now, service::Effects& effects) {
  const auto node = one.subscribers.extract(number);
  for (const Waiter& each : node.mapped().waiters)
    service::answer(effects, node.mapped().channel, each.ticket, fail(Error::closed, "the exchange was closed"));
  Grants* grants = one.exchange ? one.exchange->grants() : nullptr;
  if (one.publisher == number) {
    one.publisher = 0;
    if (grants != nullptr) grants->set_user(false);
  }
  one.tell_deciding(now);
  if (!node.mapped().sets_targets || grants == nullptr) return;
  for (MemberIndex i = 0; i < one.places.size(); ++i) grants->set_target(i, 0);
}

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
