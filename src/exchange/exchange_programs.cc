// Requests of programs to an exchange: taking part, its description, views, grants.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "exchange/exchange_service.h"
#include "exchange/one_exchange.h"
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
                names.empty() ? "; agents have them by [[exchange]]" : names);
  }
  One& one = **at;
  const uid_t user = channels_.at(channel).user;
  if (user != owner_ && user != 0 && user != one.settings.user)
    return fail(Error::denied, "exchange {} is not user {}'s", message.name, user);
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
  service::answer(effects, channel, request.ticket, grants->may_grant(now) ? std::uint64_t{1} : 0);
  return {};
}

Status ExchangeService::end(std::uint64_t channel, const channel::Entry& request, TimeNs, service::Effects& effects) {
  wire::ExchangeClose message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  remove(*found.one, message.number, effects);
  service::answer(effects, channel, request.ticket, 0);
  return {};
}

// Grants that a program requested end with it.
void ExchangeService::remove(One& one, std::uint64_t number, service::Effects& effects) {
  const auto node = one.subscribers.extract(number);
  for (const Waiter& each : node.mapped().waiters)
    service::answer(effects, node.mapped().channel, each.ticket, fail(Error::closed, "the exchange was closed"));
  Grants* grants = one.exchange ? one.exchange->grants() : nullptr;
  if (one.publisher == number) {
    one.publisher = 0;
    if (grants != nullptr) grants->set_user(false);
  }
  if (!node.mapped().sets_targets || grants == nullptr) return;
  for (MemberIndex i = 0; i < one.places.size(); ++i) grants->set_target(i, 0);
}

}  // namespace offpath::exchange
