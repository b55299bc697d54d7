#include "exchange/exchange_service.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/config.h"
#include "base/log.h"
#include "exchange/exchange_decisions.h"
#include "exchange/one_exchange.h"
#include "wire/messages/message_kinds.h"

namespace offpath::exchange {

namespace {

std::vector<wire::ExchangeField> fields_of(const Schema* schema) {
  std::vector<wire::ExchangeField> fields;
  if (schema == nullptr) return fields;
  for (const Field& each : schema->fields) {
    const char type = each.type == FieldType::u64 ? 'u' : each.type == FieldType::i64 ? 'i' : 'f';
    fields.push_back({each.name, type, each.unit, each.description});
  }
  return fields;
}

// dpu9 before dpu10.
bool comes_before(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    std::size_t end_a = i, end_b = j;
    while (end_a < a.size() && is_digit(a[end_a])) ++end_a;
    while (end_b < b.size() && is_digit(b[end_b])) ++end_b;
    std::string_view one = a.substr(i, end_a - i), other = b.substr(j, end_b - j);
    while (one.size() > 1 && one.front() == '0') one.remove_prefix(1);
    while (other.size() > 1 && other.front() == '0') other.remove_prefix(1);
    if (one.size() != other.size()) return one.size() < other.size();
    if (one != other) return one < other;
    i = end_a, j = end_b;
  }
  return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

}  // namespace

ExchangeService::One::One(ExchangeSettings given)
    : settings(std::move(given)),
      tag(tag_of(settings.options.name)),
      fields(fields_of(settings.options.schema.get())),
      decision(settings.decides ? std::make_unique<Decision>(*settings.decides) : nullptr) {}

Deciding ExchangeService::One::deciding(TimeNs now) const {
  if (decision) {
    const bool fails = failing_since != never && now - failing_since >= settings.options.grants->lease_ns;
    return fails ? Deciding::no : has_granted ? Deciding::granting : Deciding::able;
  }
  if (std::ranges::any_of(subscribers, [](const auto& each) { return each.second.sets_targets; }))
    return Deciding::granting;
  return publisher != 0 ? Deciding::able : Deciding::no;
}

void ExchangeService::One::tell_deciding(TimeNs now) {
  if (exchange && exchange->grants() != nullptr) exchange->grants()->set_deciding(deciding(now), now);
}

ExchangeService::ExchangeService(std::vector<ExchangeSettings> settings, std::uint64_t nonce, TimeNs (*clock)(),
                                 TimeNs (*suspended)())
    : nonce_(nonce),
      clock_(clock),
      suspended_(suspended),
      suspended_before_(suspended != nullptr ? suspended() : 0),
      decisions_(std::make_unique<Decisions>([this] { return next_token(); })),
      reader_(
          [this](std::uint64_t tag) -> std::uint64_t {
            const auto at = std::ranges::find(exchanges_, tag, [](const auto& each) { return each->tag; });
            return at != exchanges_.end() && (*at)->exchange ? (*at)->bytes_max : 0;
          },
          [this](std::uint64_t tag, SharedBytes parcel) {
            const auto at = std::ranges::find(exchanges_, tag, [](const auto& each) { return each->tag; });
            if (at != exchanges_.end()) arrived_.emplace_back(at->get(), std::move(parcel));
          }) {
  for (ExchangeSettings& each : settings) exchanges_.push_back(std::make_unique<One>(std::move(each)));
}

ExchangeService::~ExchangeService() = default;

void ExchangeService::set_self(std::string name, uid_t owner) {
  self_ = std::move(name);
  owner_ = owner;
}

// ---- members

void ExchangeService::on_members(const std::vector<GroupMember>& members, TimeNs now, service::Effects& effects) {
  for (auto& one : exchanges_) rebuild(*one, members, now);
  on_time(now, effects);
}

void ExchangeService::rebuild(One& one, const std::vector<GroupMember>& members, TimeNs now) {
  std::vector<Place> places;
  const auto known = [&](const std::string& name) { return std::ranges::find(members, name, &GroupMember::name); };
  if (one.settings.members.empty()) {
    for (const GroupMember& each : members) places.push_back({each.name, each.host, each.rack});
    std::ranges::sort(places, comes_before, &Place::name);
  } else {
    for (const std::string& name : one.settings.members) {
      const auto at = known(name);
      // A member's place must not depend on whether it is alive: all members must see one tree.
      const bool by_place = one.settings.shape.order == Shape::Order::locality && at != members.end();
      places.push_back(by_place ? Place{name, at->host, at->rack} : Place{name});
    }
  }
  const auto same = [](const Place& a, const Place& b) {
    return a.name == b.name && a.host == b.host && a.rack == b.rack;
  };
  if (!one.exchange || !std::ranges::equal(places, one.places, same)) {
    ++changes_;
    const auto self = std::ranges::find(places, self_, &Place::name);
    auto topology = Topology::make(one.settings.shape, places);
    if (self == places.end())
      one.failure = fmt::format("{} is not one of its members", self_);
    else if (!topology)
      one.failure = topology.error().message;
    else
      one.failure.clear();
    one.places = places;
    if (one.exchange) one.last_epoch = one.exchange->epoch();
    one.exchange.reset();
    one.view.reset();
    if (!one.failure.empty()) {
      log(LogLevel::warning, "exchange {} does not run here: {}", one.settings.options.name, one.failure);
      return;
    }
    std::vector<std::string> names;
    for (const Place& each : places) names.push_back(each.name);
    one.carrier = std::make_unique<ChannelCarrier>(
        one.tag, std::move(names),
        [this](const std::string& member, group::Request request) { posts_.push_back({member, std::move(request)}); });
    one.bytes_max = parcel_bytes_max(places.size(), one.settings.options.record_bytes, 64 * 1024);
    one.exchange =
        std::make_unique<Exchange>(one.settings.options, std::move(*topology),
                                   static_cast<MemberIndex>(self - places.begin()), nonce_, now, one.last_epoch);
    if (Grants* grants = one.exchange->grants(); grants != nullptr && one.decision) grants->set_user(true);
    one.tell_deciding(now);
    one.interval_watch = IntervalWatch(one.settings.options.interval_ns, one.settings.options.deadline_ns);
    one.interval_held_ns = 0;
    log(LogLevel::info, "exchange {}: {} members, {}", one.settings.options.name, places.size(),
        shape_text(one.settings.shape));
    if (const std::string warning = warning_of_grants(one.settings.options, one.exchange->topology()); !warning.empty())
      log(LogLevel::warning, "{}", warning);
  }
  for (MemberIndex i = 0; i < one.places.size(); ++i) {
    if (i == one.exchange->self()) continue;
    const auto at = known(one.places[i].name);
    one.exchange->on_member(i, at != members.end() && at->is_up, now);
  }
}

// ---- requests

void ExchangeService::on_request(std::uint64_t channel, const channel::Entry& request, bool is_member, TimeNs now,
                                 service::Effects& effects) {
  notice_suspend();
  if (static_cast<wire::EntryKind>(request.kind) == wire::EntryKind::peer_exchange) {
    reader_.on_request(channel, request, is_member, next_token(), effects);
    return take_arrived(now, effects);
  }
  if (Status served = serve(channel, request, now, effects); !served)
    service::answer_outcome(effects, channel, request.ticket, std::move(served));
}

Status ExchangeService::serve(std::uint64_t channel, const channel::Entry& request, TimeNs now,
                              service::Effects& effects) {
  switch (static_cast<wire::EntryKind>(request.kind)) {
    case wire::EntryKind::exchange_open:
      return open(channel, request, now, effects);
    case wire::EntryKind::exchange_info:
      return describe(channel, request, effects);
    case wire::EntryKind::exchange_wait:
      return wait(channel, request, now, effects);
    case wire::EntryKind::exchange_grant:
      return grant(channel, request, now, effects);
    case wire::EntryKind::exchange_close:
      return end(channel, request, now, effects);
    default:
      return fail(Error::protocol, "request kind {} does not belong to exchanges", request.kind);
  }
}

ExchangeService::Found ExchangeService::find(std::uint64_t number) const {
  for (const auto& one : exchanges_)
    if (const auto at = one->subscribers.find(number); at != one->subscribers.end()) return {one.get(), &at->second};
  return {};
}

Result<ExchangeService::Found> ExchangeService::own(std::uint64_t channel, std::uint64_t number) const {
  const Found found = find(number);
  if (found.one == nullptr || found.subscriber->channel != channel)
    return fail(Error::not_found, "this program has opened no exchange {}", number);
  return found;
}

void ExchangeService::on_channel_closed(std::uint64_t channel, TimeNs now, service::Effects& effects) {
  channels_.erase(channel);
  reader_.on_channel_closed(channel);
  for (auto& one : exchanges_) {
    std::vector<std::uint64_t> gone;
    for (const auto& [number, subscriber] : one->subscribers)
      if (subscriber.channel == channel) gone.push_back(number);
    for (const std::uint64_t number : gone) remove(*one, number, now, effects);
  }
}

// ---- rounds

// Before any decision that depends on a time that may have stopped.
void ExchangeService::notice_suspend() {
  if (suspended_ == nullptr || exchanges_.empty()) return;
  const TimeNs all = suspended_();
  if (all <= suspended_before_) return;
  const TimeNs slept = all - std::exchange(suspended_before_, all);
  for (auto& one : exchanges_)
    if (one->exchange && one->exchange->grants() != nullptr) one->exchange->grants()->on_suspended(slept);
}

void ExchangeService::on_time(TimeNs now, service::Effects& out) {
  notice_suspend();
  for (auto& one : exchanges_) {
    if (one->exchange && one->exchange->next_deadline() <= now) {
      ExchangeEffects effects;
      one->exchange->on_time(now, effects);
      carry_out(*one, effects, now, out);
    }
  }
  if (waiters_due_ <= now) answer_waiters(now, out);
}

// Answers waits whose deadline has passed.
void ExchangeService::answer_waiters(TimeNs now, service::Effects& out) {
  waiters_due_ = never;
  for (auto& one : exchanges_) {
    for (auto& numbered : one->subscribers) {
      Subscriber& subscriber = numbered.second;
      std::erase_if(subscriber.waiters, [&](const Waiter& each) {
        if (each.until > now) {
          waiters_due_ = std::min(waiters_due_, each.until);
          return false;
        }
        service::answer(out, subscriber.channel, each.ticket, subscriber.shown);
        return true;
      });
    }
  }
}

TimeNs ExchangeService::next_deadline() const noexcept {
  TimeNs first = waiters_due_;
  for (const auto& one : exchanges_)
    if (one->exchange) first = std::min(first, one->exchange->next_deadline());
  return first;
}

void ExchangeService::carry_out(One& one, ExchangeEffects& effects, TimeNs now, service::Effects& out) {
  const TimeNs began = clock_ != nullptr ? clock_() : 0;
  for (ExchangeEffects::Send& send : effects.sends)
    one.carrier->send(send.to, std::move(send.parcel), send.deadline, now);
  for (Post& post : std::exchange(posts_, {})) ask(std::move(post), out);
  for (ViewPtr& view : effects.views) {
    one.view = std::move(view);
    for (auto& [number, subscriber] : one.subscribers) show(one, subscriber, one.view, now, out);
    watch_interval(one, *one.view, now);
    if (one.decision && decisions_->is_served()) decisions_->decide(one, *one.view, suspended_before_, now, out);
  }
  if (effects.wants_local) begin_read(one, now, out);
  if (clock_ != nullptr) one.cost_ns += clock_() - began;
}

void ExchangeService::watch_interval(One& one, const View& view, TimeNs now) {
  const auto judged = one.interval_watch.on_view(
      view, [&](MemberIndex member) { return member == one.exchange->self() || !one.exchange->is_dead(member); });
  if (!judged) return;
  one.interval_held_ns = judged->holds_ns;
  if (judged->holds_ns == 0 || !is_due(one.interval_logged_at, now)) return;
  const ExchangeOptions& options = one.settings.options;
  log(LogLevel::warning,
      "exchange {}: {} of the last {} views were complete in the interval of {}; it {} hold {} (exchange.interval, "
      "with the deadline in proportion)",
      options.name, judged->complete, judged->views, format_duration(options.interval_ns),
      judged->is_measured ? "could" : "might", format_duration(judged->holds_ns));
}

void ExchangeService::take_arrived(TimeNs now, service::Effects& out) {
  for (auto& [one, parcel] : std::exchange(arrived_, {})) {
    if (!one->exchange) continue;
    one->carrier->deliver(std::move(parcel));
    const TimeNs began = clock_ != nullptr ? clock_() : 0;
    ExchangeEffects effects;
    (void)one->carrier->poll(now, [&, to = one](MemberIndex from, const SharedBytes& bytes) {
      if (const Status taken = to->exchange->on_parcel(bytes, now, effects); !taken)
        log(LogLevel::debug, "exchange {}: a parcel of member {}: {}", to->settings.options.name, from,
            taken.error().message);
    });
    if (clock_ != nullptr) one->cost_ns += clock_() - began;
    carry_out(*one, effects, now, out);
  }
}

// ---- functions

void ExchangeService::serve_decisions(GaugeVisit gauges, SetActuator set) {
  decisions_->serve(std::move(gauges), std::move(set));
}

void ExchangeService::on_called(std::uint64_t token, Result<plugin::Outputs> outcome, TimeNs now, service::Effects&) {
  notice_suspend();
  decisions_->on_called(token, outcome, now);
}

// ---- members asked

void ExchangeService::ask(Post post, service::Effects& effects) {
  group::Request& request = post.request;
  service::AskEffect asked{.token = next_token(),
                           .member = std::move(post.member),
                           .kind = request.kind,
                           .deadline = request.deadline,
                           .object = nullptr,
                           .compose = std::move(request.compose)};
  asked.payload_bytes = request.payload_bytes;
  asked.body = std::move(request.body);
  asked.memory = request.object;
  asked.owner = std::move(request.owner);
  asked_.emplace(asked.token, std::move(request.answer));
  effects.push_back(std::move(asked));
}

void ExchangeService::on_answer(std::uint64_t token, Result<service::Answer> answer, TimeNs now, service::Effects&) {
  if (const auto node = asked_.extract(token)) node.mapped()(std::move(answer), now);
}

// ---- completions

void ExchangeService::push(service::Effects& effects, service::ChannelNumber channel, std::uint64_t token,
                           wire::RegionId region, std::uint64_t offset, Bytes bytes) {
  effects.push_back(service::PushEffect{channel, token, {{region, offset, bytes.data(), bytes.size()}}, nullptr});
}

void ExchangeService::on_transfer(std::uint64_t token, Status status, TimeNs now, service::Effects& effects) {
  notice_suspend();
  if (reader_.on_transfer(token, status, effects)) return take_arrived(now, effects);
  const auto node = transfers_.extract(token);
  if (!node) return;
  const Transfer& transfer = node.mapped();
  const Found found = find(transfer.subscriber);
  if (found.one == nullptr || !found.one->exchange) return;  // it was removed meanwhile
  switch (transfer.kind) {
    case Transfer::Kind::read:
      return on_read(*found.one, *found.subscriber, status, now, effects);
    case Transfer::Kind::push:
      return on_push(*found.one, *found.subscriber, status, now, effects);
    case Transfer::Kind::describe:
      if (status)
        service::answer(effects, found.subscriber->channel, transfer.ticket, transfer.bytes->size());
      else
        service::answer(effects, found.subscriber->channel, transfer.ticket, tl::unexpected(status.error()));
      return;
  }
}

// ---- status

std::vector<ExchangeService::Known> ExchangeService::known() const {
  std::vector<Known> all;
  for (const auto& one : exchanges_)
    all.push_back({one->settings.options.name, shape_text(one->settings.shape), one->failure, one->places.size()});
  return all;
}

std::vector<ExchangeService::ExchangeStatus> ExchangeService::status(TimeNs now) const {
  std::vector<ExchangeStatus> all;
  for (const auto& one : exchanges_) {
    ExchangeStatus& told = all.emplace_back();
    told.name = one->settings.options.name;
    told.topology = shape_text(one->settings.shape);
    told.failure = one->failure;
    for (const Place& each : one->places) told.members.push_back(each.name);
    told.view = one->view;
    told.programs = one->subscribers.size();
    told.has_publisher = one->publisher != 0 || !one->settings.source.empty() || one->decision;
    told.reductions = one->settings.options.reductions;
    told.views_pushed = one->views_pushed;
    told.records_pulled = one->records_pulled;
    told.torn = one->torn;
    told.cost_ns = one->cost_ns;
    told.interval_held_ns = one->interval_held_ns;
    told.decides = one->decision != nullptr;
    if (one->decision) told.decisions = one->decision->counters();
    if (!one->exchange) continue;
    const Exchange& exchange = *one->exchange;
    told.tree = exchange.shared_topology();
    told.self = exchange.self();
    told.counters = exchange.counters();
    told.leads = exchange.leader() == exchange.self();
    for (MemberIndex i = 0; i < one->places.size(); ++i) told.up.push_back(i == told.self || exchange.is_up(i));
    if (const Grants* grants = exchange.grants()) {
      told.may_grant = grants->may_grant(now);
      told.deciding = one->deciding(now);
      told.granted = grants->given_out(now);
      told.grant_total = exchange.options().grants->total;
      told.held = grants->held(now).amount;
    }
  }
  return all;
}

}  // namespace offpath::exchange
