#include "exchange/exchange_service.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace offpath::exchange {

namespace {

constexpr unsigned torn_max = 3;                       // reads of a record that its program was just writing
constexpr std::uint64_t line_bytes = sizeof(wire::PublishLine);
constexpr std::uint64_t first_read_bytes = 4096;       // of a record, with its head

std::vector<wire::ExchangeField> fields_of(const Schema* schema) {
  std::vector<wire::ExchangeField> fields;
  if (schema == nullptr) return fields;
  for (const Field& each : schema->fields) {
    const char type = each.type == FieldType::u64 ? 'u' : each.type == FieldType::i64 ? 'i' : 'f';
    fields.push_back({each.name, type, each.unit, each.description});
  }
  return fields;
}

std::string text_of(const std::vector<wire::ExchangeField>& fields) {
  std::string text;
  for (const auto& each : fields) text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", each.name, each.type);
  return text;
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

struct ExchangeService::One {
  explicit One(ExchangeSettings given) : settings(std::move(given)), tag(tag_of(settings.options.name)), fields(fields_of(settings.options.schema.get())) {}

  ExchangeSettings settings;
  std::uint64_t tag;
  std::vector<wire::ExchangeField> fields;  // of the configuration, or of the program that came first
  std::string failure{"the group has not been told yet"};
  std::vector<Place> places;
  std::unique_ptr<Exchange> exchange;       // null: it does not run here
  std::unique_ptr<ChannelCarrier> carrier;
  std::map<std::uint64_t, Subscriber> subscribers;  // by number
  std::uint64_t publisher = 0;              // its number; 0: none
  Record record{};                          // the newest one
  TimeNs record_made_at = 0;
  ViewPtr view;
  std::uint64_t views_pushed = 0, records_pulled = 0, torn = 0, bytes_max = 0;
  TimeNs cost_ns = 0;
  std::uint64_t last_epoch = 0;
};

ExchangeService::ExchangeService(std::vector<ExchangeSettings> settings, std::uint64_t nonce, TimeNs (*clock)())
    : nonce_(nonce),
      clock_(clock),
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

void ExchangeService::on_members(const std::vector<GroupMember>& members, TimeNs now, ServiceEffects& effects) {
  for (auto& one : exchanges_) rebuild(*one, members, now);
  on_time(now, effects);
}

void ExchangeService::rebuild(One& one, const std::vector<GroupMember>& members, TimeNs now) {
  std::vector<Place> places;
  const auto known = [&](const std::string& name) { return std::ranges::find(members, name, &GroupMember::name); };
  if (one.settings.members.empty()) {
    for (const GroupMember& each : members) places.push_back({each.name, each.host, {}});
    std::ranges::sort(places, comes_before, &Place::name);
  } else {
    for (const std::string& name : one.settings.members) {
      const auto at = known(name);
      // Where a member is must not depend on whether it is there: all are to see one tree.
      places.push_back({name, one.settings.shape.order == Shape::Order::locality && at != members.end() ? at->host : std::string(), {}});
    }
  }
  const auto same = [](const Place& a, const Place& b) { return a.name == b.name && a.host == b.host; };
  if (!one.exchange || !std::ranges::equal(places, one.places, same)) {
    const auto self = std::ranges::find(places, self_, &Place::name);
    auto topology = Topology::make(one.settings.shape, places);
    if (self == places.end()) one.failure = fmt::format("{} is none of its members", self_);
    else if (!topology) one.failure = topology.error().message;
    else one.failure.clear();
    one.places = places;
    if (one.exchange) one.last_epoch = one.exchange->epoch();
    one.exchange.reset();
    one.view.reset();
    if (!one.failure.empty()) {
      log(LogLevel::warning, "exchange {}: it does not run here: {}", one.settings.options.name, one.failure);
      return;
    }
    std::vector<std::string> names;
    for (const Place& each : places) names.push_back(each.name);
    one.carrier = std::make_unique<ChannelCarrier>(one.tag, std::move(names), [this](const std::string& member, group::Request request) {
      posts_.push_back({member, std::move(request)});
    });
    one.bytes_max = parcel_bytes_max(places.size(), one.settings.options.record_bytes, 64 * 1024);
    one.exchange = std::make_unique<Exchange>(one.settings.options, std::move(*topology), static_cast<MemberIndex>(self - places.begin()), nonce_, now, one.last_epoch);
    log(LogLevel::info, "exchange {}: {} members, {}", one.settings.options.name, places.size(), shape_text(one.settings.shape));
  }
  for (MemberIndex i = 0; i < one.places.size(); ++i) {
    if (i == one.exchange->self()) continue;
    const auto at = known(one.places[i].name);
    one.exchange->on_member(i, at != members.end() && at->is_up, now);
  }
}

// ---- programs

void ExchangeService::on_request(std::uint64_t channel, const channel::Entry& request, bool is_member, TimeNs now, ServiceEffects& effects) {
  if (static_cast<wire::EntryKind>(request.kind) == wire::EntryKind::peer_exchange) {
    ParcelReader::Effects read;
    reader_.on_request(channel, request, is_member, next_++, read);
    drain(read, effects);
    return take_arrived(now, effects);
  }
  if (Status served = serve(channel, request, now, effects); !served) effects.outcomes.push_back({channel, request.ticket, std::move(served)});
}

Status ExchangeService::serve(std::uint64_t channel, const channel::Entry& request, TimeNs now, ServiceEffects& effects) {
  switch (static_cast<wire::EntryKind>(request.kind)) {
    case wire::EntryKind::exchange_open: return open(channel, request, now, effects);
    case wire::EntryKind::exchange_info: return describe(channel, request, effects);
    case wire::EntryKind::exchange_wait: return wait(channel, request, now, effects);
    case wire::EntryKind::exchange_grant: return grant(channel, request, now, effects);
    case wire::EntryKind::exchange_close: return end(channel, request, now, effects);
    default: return fail(Error::protocol, "request kind {} is none of an exchange", request.kind);
  }
}

ExchangeService::Found ExchangeService::find(std::uint64_t number) const {
  for (const auto& one : exchanges_)
    if (const auto at = one->subscribers.find(number); at != one->subscribers.end()) return {one.get(), &at->second};
  return {};
}

Result<ExchangeService::Found> ExchangeService::own(std::uint64_t channel, std::uint64_t number) const {
  const Found found = find(number);
  if (found.one == nullptr || found.subscriber->channel != channel) return fail(Error::not_found, "this program has opened no exchange {}", number);
  return found;
}

Status ExchangeService::open(std::uint64_t channel, const channel::Entry& request, TimeNs now, ServiceEffects& effects) {
  wire::ExchangeOpen message{};
  OFP_TRY(wire::decode(request.payload, message));
  const auto at = std::ranges::find_if(exchanges_, [&](const auto& each) { return each->settings.options.name == message.name; });
  if (at == exchanges_.end()) {
    std::string names;
    for (const auto& each : exchanges_) names += (names.empty() ? ": " : ", ") + each->settings.options.name;
    return fail(Error::not_found, "there is no exchange \"{}\" here{}", message.name, names.empty() ? "; agents have them by [[exchange]]" : names);
  }
  One& one = **at;
  const uid_t user = channels_.at(channel).user;
  if (user != owner_ && user != 0 && user != one.settings.user)
    return fail(Error::denied, "exchange {} is not user {}'s", message.name, user);
  if (!one.exchange) return fail(Error::unsupported, "exchange {} does not run here: {}", message.name, one.failure);
  if (one.subscribers.size() >= subscribers_max) return fail(Error::too_large, "exchange {} has {} programs already", message.name, one.subscribers.size());
  if (message.publishes && !one.settings.source.empty())
    return fail(Error::exists, "the records of exchange {} come from {}", message.name, one.settings.source);
  if (message.publishes && one.publisher != 0) return fail(Error::exists, "another program publishes the records of exchange {}", message.name);
  if (message.record_bytes > one.settings.options.record_bytes)
    return fail(Error::too_large, "records of {} bytes, exchange {} has at most {}", message.record_bytes, message.name, one.settings.options.record_bytes);
  if (message.view_bytes < sizeof(wire::ViewHead) || message.view_bytes > wire::exchange_view_bytes_max)
    return fail(Error::invalid, "views of {} bytes", message.view_bytes);
  if (!wire::is_segment(message.area.region) || message.area.length < wire::exchange_area_bytes(message.record_bytes, message.view_bytes))
    return fail(Error::invalid, "the area of exchange {} has {} bytes, {} are needed", message.name, message.area.length,
                wire::exchange_area_bytes(message.record_bytes, message.view_bytes));
  if (!message.fields.empty()) {
    OFP_ASSIGN(auto fields, wire::decode_fields(message.fields));
    const auto alike = [](const wire::ExchangeField& a, const wire::ExchangeField& b) { return a.name == b.name && a.type == b.type; };
    if (!one.fields.empty() && !std::ranges::equal(fields, one.fields, alike))
      return fail(Error::schema, "records of exchange {} have the fields {}, not {}", message.name, text_of(one.fields), text_of(fields));
    if (one.fields.empty()) one.fields = std::move(fields);
  }
  const std::uint64_t number = next_++;
  Subscriber subscriber{};
  subscriber.number = number;
  subscriber.channel = channel;
  subscriber.area = message.area;
  subscriber.record_bytes = message.record_bytes;
  subscriber.view_bytes = message.view_bytes;
  subscriber.publishes = message.publishes;
  subscriber.read_before_at = subscriber.read_at = now;
  one.subscribers.emplace(number, std::move(subscriber));
  if (message.publishes) {
    one.publisher = number;
    if (Grants* grants = one.exchange->grants(); grants != nullptr) grants->set_user(true);
  }
  effects.answers.push_back({channel, request.ticket, number});
  return {};
}

Status ExchangeService::describe(std::uint64_t channel, const channel::Entry& request, ServiceEffects& effects) {
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
    effects.answers.push_back({channel, request.ticket, bytes->size()});  // it asks again, with more room
    return {};
  }
  const std::uint64_t token = next_++;
  effects.pushes.push_back({channel, token, message.room.region, message.room.offset, *bytes});
  Transfer transfer{};
  transfer.kind = Transfer::Kind::describe;
  transfer.subscriber = message.number;
  transfer.ticket = request.ticket;
  transfer.bytes = std::move(bytes);
  transfers_.emplace(token, std::move(transfer));
  return {};
}

Status ExchangeService::wait(std::uint64_t channel, const channel::Entry& request, TimeNs now, ServiceEffects& effects) {
  wire::ExchangeWait message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  Subscriber& subscriber = *found.subscriber;
  if (subscriber.shown > message.after || message.wait_ns == 0) {
    effects.answers.push_back({channel, request.ticket, subscriber.shown});
    return {};
  }
  if (subscriber.waiters.size() >= waiters_max) return fail(Error::too_large, "{} waits for views of one program", subscriber.waiters.size());
  subscriber.waiters.push_back({request.ticket, message.after, deadline_after(now, message.wait_ns)});
  return {};
}

Status ExchangeService::grant(std::uint64_t channel, const channel::Entry& request, TimeNs now, ServiceEffects& effects) {
  wire::ExchangeGrant message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  Grants* grants = found.one->exchange ? found.one->exchange->grants() : nullptr;
  if (grants == nullptr) return fail(Error::unsupported, "exchange {} has no grants (exchange.grant_total)", found.one->settings.options.name);
  for (const wire::ExchangeWish& wish : message.wishes)
    if (wish.member >= found.one->places.size())
      return fail(Error::not_found, "a grant for member {}, exchange {} has {}", wish.member, found.one->settings.options.name, found.one->places.size());
  for (const wire::ExchangeWish& wish : message.wishes) grants->wish(wish.member, wish.amount);
  found.subscriber->wished = true;
  effects.answers.push_back({channel, request.ticket, grants->may_grant(now) ? std::uint64_t{1} : 0});
  return {};
}

Status ExchangeService::end(std::uint64_t channel, const channel::Entry& request, TimeNs, ServiceEffects& effects) {
  wire::ExchangeClose message{};
  OFP_TRY(wire::decode(request.payload, message));
  OFP_ASSIGN(const Found found, own(channel, message.number));
  remove(*found.one, message.number, effects);
  effects.answers.push_back({channel, request.ticket, 0});
  return {};
}

// What a program would have granted ends with it.
void ExchangeService::remove(One& one, std::uint64_t number, ServiceEffects& effects) {
  const auto node = one.subscribers.extract(number);
  for (const Waiter& each : node.mapped().waiters)
    effects.outcomes.push_back({node.mapped().channel, each.ticket, fail(Error::closed, "the exchange was closed")});
  Grants* grants = one.exchange ? one.exchange->grants() : nullptr;
  if (one.publisher == number) {
    one.publisher = 0;
    if (grants != nullptr) grants->set_user(false);
  }
  if (!node.mapped().wished || grants == nullptr) return;
  for (MemberIndex i = 0; i < one.places.size(); ++i) grants->wish(i, 0);
}

void ExchangeService::on_channel_closed(std::uint64_t channel, TimeNs, ServiceEffects& effects) {
  channels_.erase(channel);
  reader_.on_channel_closed(channel);
  for (auto& one : exchanges_) {
    std::vector<std::uint64_t> gone;
    for (const auto& [number, subscriber] : one->subscribers)
      if (subscriber.channel == channel) gone.push_back(number);
    for (const std::uint64_t number : gone) remove(*one, number, effects);
  }
}

// ---- rounds

void ExchangeService::on_time(TimeNs now, ServiceEffects& out) {
  for (auto& one : exchanges_) {
    if (one->exchange && one->exchange->next_deadline() <= now) {
      ExchangeEffects effects;
      one->exchange->on_time(now, effects);
      carry_out(*one, effects, now, out);
    }
    for (auto& numbered : one->subscribers) {
      Subscriber& subscriber = numbered.second;
      std::erase_if(subscriber.waiters, [&](const Waiter& each) {
        if (each.until > now) return false;
        out.answers.push_back({subscriber.channel, each.ticket, subscriber.shown});
        return true;
      });
    }
  }
}

TimeNs ExchangeService::next_deadline() const noexcept {
  TimeNs first = never;
  for (const auto& one : exchanges_) {
    if (one->exchange) first = std::min(first, one->exchange->next_deadline());
    for (const auto& [number, subscriber] : one->subscribers)
      for (const Waiter& each : subscriber.waiters) first = std::min(first, each.until);
  }
  return first;
}

void ExchangeService::carry_out(One& one, ExchangeEffects& effects, TimeNs now, ServiceEffects& out) {
  const TimeNs began = clock_ != nullptr ? clock_() : 0;
  for (ExchangeEffects::Send& send : effects.sends) one.carrier->send(send.to, std::move(send.parcel), send.deadline, now);
  for (ServiceEffects::Post& post : std::exchange(posts_, {})) out.posts.push_back(std::move(post));
  for (ViewPtr& view : effects.views) {
    one.view = std::move(view);
    for (auto& [number, subscriber] : one.subscribers) show(one, subscriber, one.view, now, out);
  }
  if (effects.wants_local) begin_read(one, now, out);
  if (clock_ != nullptr) one.cost_ns += clock_() - began;
}

void ExchangeService::take_arrived(TimeNs now, ServiceEffects& out) {
  for (auto& [one, parcel] : std::exchange(arrived_, {})) {
    if (!one->exchange) continue;
    one->carrier->deliver(std::move(parcel));
    const TimeNs began = clock_ != nullptr ? clock_() : 0;
    ExchangeEffects effects;
    (void)one->carrier->poll(now, [&, to = one](MemberIndex from, const SharedBytes& bytes) {
      if (const Status taken = to->exchange->on_parcel(bytes, now, effects); !taken)
        log(LogLevel::debug, "exchange {}: a parcel of member {}: {}", to->settings.options.name, from, taken.error().message);
    });
    if (clock_ != nullptr) one->cost_ns += clock_() - began;
    carry_out(*one, effects, now, out);
  }
}

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

// ---- records of programs

void ExchangeService::begin_read(One& one, TimeNs now, ServiceEffects& out) {
  if (one.publisher == 0) return give_local(one, now, out);
  Subscriber& subscriber = one.subscribers.at(one.publisher);
  if (subscriber.read != Subscriber::Read::idle) {
    subscriber.read_again = true;
    return;
  }
  subscriber.torn = 0;
  subscriber.read_before_at = subscriber.read_at;
  subscriber.read_at = now;
  if (!subscriber.room) subscriber.room = std::make_shared<std::vector<std::byte>>(line_bytes + wire::record_slot_bytes(subscriber.record_bytes));
  read_line(subscriber, out);
}

void ExchangeService::read_line(Subscriber& subscriber, ServiceEffects& out) {
  subscriber.read = Subscriber::Read::line;
  pull(subscriber, 0, line_bytes, 0, out);
}

void ExchangeService::pull(const Subscriber& subscriber, std::uint64_t offset, std::uint64_t length, std::uint64_t room_at, ServiceEffects& out) {
  const std::uint64_t token = next_++;
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
  out.pulls.push_back({subscriber.channel, token, from, subscriber.room->data() + room_at});
}

void ExchangeService::give_local(One& one, TimeNs now, ServiceEffects& out) {
  ExchangeEffects effects;
  one.exchange->on_local(one.record, std::max<TimeNs>(now - one.record_made_at, 0), now, effects);
  carry_out(one, effects, now, out);
}

void ExchangeService::on_read(One& one, Subscriber& subscriber, const Status& status, TimeNs now, ServiceEffects& out) {
  const std::uint64_t slot_bytes = wire::record_slot_bytes(subscriber.record_bytes);
  bool done = !status;
  if (status && subscriber.read == Subscriber::Read::line) {
    subscriber.reading = load<wire::PublishLine>(subscriber.room->data()).number;
    done = subscriber.reading == 0 || subscriber.reading == subscriber.record_number;  // nothing new
    if (!done) {
      subscriber.read = Subscriber::Read::slot;
      pull(subscriber, wire::record_slot_at(subscriber.reading, subscriber.record_bytes), std::min(slot_bytes, first_read_bytes), line_bytes, out);
    }
  } else if (status) {
    const auto head = load<wire::RecordHead>(subscriber.room->data() + line_bytes);
    const std::uint64_t there = std::min(slot_bytes, first_read_bytes), wanted = sizeof head + head.length;
    if (subscriber.read == Subscriber::Read::slot && head.number == subscriber.reading && head.length <= subscriber.record_bytes && wanted > there) {
      subscriber.read = Subscriber::Read::rest;
      pull(subscriber, wire::record_slot_at(subscriber.reading, subscriber.record_bytes) + there, wanted - there, line_bytes + there, out);
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

// True when the reading is over: the record is whole, or was torn too often, and the one before stands.
bool ExchangeService::take_slot(One& one, Subscriber& subscriber, TimeNs now, ServiceEffects& out) {
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
  // Where the program's clock says nothing, the record may be as old as the last look that did not see it.
  const bool same_clock = channels_.at(subscriber.channel).same_clock && head.published_at_ns <= now && head.published_at_ns > 0;
  one.record_made_at = same_clock ? head.published_at_ns : subscriber.read_before_at;
  return true;
}

// ---- views to programs

void ExchangeService::show(One& one, Subscriber& subscriber, ViewPtr view, TimeNs now, ServiceEffects& out) {
  if (subscriber.push != Subscriber::Push::idle) {
    subscriber.next = std::move(view);  // whatever waited before is older
    return;
  }
  ++subscriber.view_number;
  if (const Grants* grants = one.exchange->grants(); grants != nullptr && subscriber.publishes) {
    subscriber.shown_grants.push_back({subscriber.view_number, grants->held_nonce(), grants->held(now).number});
    if (subscriber.shown_grants.size() > shown_grants_max) subscriber.shown_grants.pop_front();
  }
  encode_view(one, subscriber, *view, now, subscriber.view_bytes_out);
  subscriber.push = Subscriber::Push::slot;
  const std::uint64_t token = next_++;
  Transfer transfer{};
  transfer.kind = Transfer::Kind::push;
  transfer.subscriber = subscriber.number;
  transfer.bytes = std::make_shared<std::vector<std::byte>>(std::move(subscriber.view_bytes_out));
  out.pushes.push_back({subscriber.channel, token, subscriber.area.region,
                        subscriber.area.offset + wire::view_slot_at(subscriber.view_number, subscriber.record_bytes, subscriber.view_bytes), *transfer.bytes});
  transfers_.emplace(token, std::move(transfer));
}

void ExchangeService::on_push(One& one, Subscriber& subscriber, const Status& status, TimeNs now, ServiceEffects& out) {
  if (!status) {
    subscriber.push = Subscriber::Push::idle;  // the channel ends, or the area is not what it was said to be
    return;
  }
  if (subscriber.push == Subscriber::Push::slot) {
    subscriber.push = Subscriber::Push::line;
    const std::uint64_t token = next_++;
    Transfer transfer{};
    transfer.kind = Transfer::Kind::push;
    transfer.subscriber = subscriber.number;
    transfer.bytes = std::make_shared<std::vector<std::byte>>(sizeof(wire::ViewLine));
    wire::ViewLine line{};
    line.number = subscriber.view_number;
    store(transfer.bytes->data(), line);
    // The number alone: one aligned word.
    out.pushes.push_back({subscriber.channel, token, subscriber.area.region, subscriber.area.offset + sizeof(wire::PublishLine),
                          Bytes(*transfer.bytes).first(sizeof line.number)});
    transfers_.emplace(token, std::move(transfer));
    return;
  }
  subscriber.push = Subscriber::Push::idle;
  subscriber.shown = subscriber.view_number;
  ++one.views_pushed;
  std::erase_if(subscriber.waiters, [&](const Waiter& each) {
    if (subscriber.shown <= each.after) return false;
    out.answers.push_back({subscriber.channel, each.ticket, subscriber.shown});
    return true;
  });
  if (subscriber.next) show(one, subscriber, std::exchange(subscriber.next, nullptr), now, out);
}

void ExchangeService::encode_view(const One& one, const Subscriber& subscriber, const View& view, TimeNs now, std::vector<std::byte>& to) const {
  const auto& reductions = one.settings.options.reductions;
  const std::size_t figures = view.reduced ? reductions.size() : 0;
  std::uint64_t at = sizeof(wire::ViewHead) + view.entries.size() * sizeof(wire::ViewEntryRow) + figures * sizeof(wire::ViewFigureRow);
  wire::ViewHead head{};
  const bool rows_fit = at <= subscriber.view_bytes;
  to.assign(rows_fit ? at : sizeof head, std::byte{0});
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
  if (const Grants* grants = one.exchange->grants(); grants != nullptr && subscriber.publishes && subscriber.record_number != 0) {
    const Grants::Held held = grants->held(now);
    // Counted from when the record was seen, which is later than when it was published (grants.h).
    const TimeNs valid = held.until - subscriber.record_seen_at;
    head.grant_leader = held.leader;
    head.grant_number = held.number;
    if (now < held.until && valid > 0) {
      head.grant_amount = held.amount;
      head.grant_record = subscriber.record_number;
      head.grant_valid_ns = valid;
    }
  }
  const auto put = [&](Bytes bytes) {  // its place, or 0: there was no room
    const std::uint64_t place = to.size();
    if (place + align_up(bytes.size(), 8) > subscriber.view_bytes) return std::uint64_t{0};
    to.resize(place + align_up(bytes.size(), 8));
    if (!bytes.empty()) std::memcpy(to.data() + place, bytes.data(), bytes.size());
    return place;
  };
  if (rows_fit) {
    head.entries = static_cast<std::uint32_t>(view.entries.size());
    head.figures = static_cast<std::uint32_t>(figures);
    at = sizeof head;
    for (const ViewEntry& entry : view.entries) {
      wire::ViewEntryRow row{};
      row.member = entry.member;
      row.epoch = entry.epoch;
      row.age_ns = entry.age_ns;
      row.flags = (entry.present ? wire::entry_present : 0) | (entry.has_value ? wire::entry_has_value : 0);
      row.length = entry.record.bytes.size();
      row.offset = put(entry.record.bytes);
      if (row.offset == 0) {
        row.length = 0;
        row.flags |= wire::entry_cut;
        head.flags |= wire::view_cut;
      }
      store(to.data() + at, row);
      at += sizeof row;
    }
    std::vector<std::uint64_t> words;
    for (std::size_t i = 0; i < figures; ++i) {
      const Reduced::Figure& figure = view.reduced->figure(i);
      const Reduction& reduction = reductions[i];
      wire::ViewFigureRow row{};
      row.count = figure.count;
      row.value = view.reduced->value(i, reduction);
      row.bits = reduction.kind == Reduction::Kind::min   ? static_cast<std::uint64_t>(figure.least)
                 : reduction.kind == Reduction::Kind::max ? static_cast<std::uint64_t>(figure.most)
                                                          : static_cast<std::uint64_t>(figure.whole);
      words = figure.bins;
      for (const Reduced::Ranked& each : figure.top) {
        words.push_back(std::bit_cast<std::uint64_t>(each.value));
        words.push_back(each.member);
      }
      row.offset = put(std::as_bytes(std::span(words)));
      if (row.offset == 0) {
        head.flags |= wire::view_cut;
      } else {
        row.ranked = static_cast<std::uint32_t>(figure.top.size());
        row.bins = static_cast<std::uint32_t>(figure.bins.size());
      }
      store(to.data() + at, row);
      at += sizeof row;
    }
  } else {
    head.flags |= wire::view_cut;
  }
  head.length = to.size();
  store(to.data(), head);
}

// ---- completions

void ExchangeService::on_transfer(std::uint64_t token, const Status& status, TimeNs now, ServiceEffects& effects) {
  ParcelReader::Effects read;
  if (reader_.on_transfer(token, status, read)) {
    drain(read, effects);
    return take_arrived(now, effects);
  }
  const auto node = transfers_.extract(token);
  if (!node) return;
  const Transfer& transfer = node.mapped();
  const Found found = find(transfer.subscriber);
  if (found.one == nullptr || !found.one->exchange) return;  // it went meanwhile
  switch (transfer.kind) {
    case Transfer::Kind::read: return on_read(*found.one, *found.subscriber, status, now, effects);
    case Transfer::Kind::push: return on_push(*found.one, *found.subscriber, status, now, effects);
    case Transfer::Kind::describe:
      if (status) effects.answers.push_back({found.subscriber->channel, transfer.ticket, transfer.bytes->size()});
      else effects.outcomes.push_back({found.subscriber->channel, transfer.ticket, status});
      return;
  }
}

void ExchangeService::drain(ParcelReader::Effects& from, ServiceEffects& to) {
  for (auto& each : from.pulls) to.pulls.push_back(each);
  for (auto& each : from.answers) to.outcomes.push_back(std::move(each));
}

// ---- status

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
    told.has_publisher = one->publisher != 0 || !one->settings.source.empty();
    told.reductions = one->settings.options.reductions;
    told.views_pushed = one->views_pushed;
    told.records_pulled = one->records_pulled;
    told.torn = one->torn;
    told.cost_ns = one->cost_ns;
    if (!one->exchange) continue;
    const Exchange& exchange = *one->exchange;
    told.picture = exchange.topology().text(one->places);
    told.tree = exchange.topology().nodes();
    told.root = exchange.topology().root();
    told.self = exchange.self();
    told.counters = exchange.counters();
    told.leads = exchange.leader() == exchange.self();
    for (MemberIndex i = 0; i < one->places.size(); ++i) told.up.push_back(i == told.self || exchange.is_up(i));
    if (const Grants* grants = exchange.grants()) {
      told.may_grant = grants->may_grant(now);
      told.granted = grants->given_out(now);
      told.grant_total = exchange.options().grants->total;
      told.held = grants->held(now).amount;
    }
  }
  return all;
}

}  // namespace offpath::exchange
