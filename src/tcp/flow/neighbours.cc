#include "tcp/flow/neighbours.h"

#include <algorithm>

#include "tcp/segment/neighbour_discovery.h"

namespace offpath::tcp {

namespace {

constexpr MacAddress all_nodes_mac = multicast_mac(all_nodes);

}  // namespace

Neighbours::Entry* Neighbours::get(const IpAddress& address) noexcept {
  const auto found = places_.find(address);
  return found == places_.end() ? nullptr : &entries_[found->second];
}

Neighbours::Entry& Neighbours::add(const IpAddress& address) {
  if (free_.empty()) {
    OFP_ASSERT(entries_.size() < no_place);
    free_.push_back(static_cast<std::uint16_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint16_t place = free_.back();
  free_.pop_back();
  places_.emplace(address, place);
  entries_[place] = {};
  entries_[place].address = address;
  return entries_[place];
}

void Neighbours::remove(Entry& entry) {
  const auto found = places_.find(entry.address);
  free_.push_back(found->second);
  places_.erase(found);
  entry.address = {};
}

const MacAddress* Neighbours::find(const IpAddress& address, std::uint16_t& place, std::uint32_t flow,
                                   std::uint64_t user, TimeNs now) {
  if (address.is_unspecified()) return nullptr;  // not a valid place
  if (place >= entries_.size() || entries_[place].address != address) {
    auto found = places_.find(address);
    if (found == places_.end()) {
      if (!make_room_of(user, now) || !make_room(now, true)) return nullptr;
      Entry& made = add(address);
      made.user = user;
      made.since = now;
      found = places_.find(address);
    }
    place = found->second;
  }
  Entry& entry = entries_[place];
  entry.used = true;
  if ((!entry.known || now >= entry.fresh_until) && entry.ask_at == never) ask(entry, now);
  if (entry.known) return &entry.mac;
  const bool waits = std::ranges::find(entry.waiting, flow) != entry.waiting.end();
  if (flow != no_flow && !waits && waiting_ < limits_.waiting_max) {
    entry.waiting.push_back(flow);
    ++waiting_;
  }
  return nullptr;
}

void Neighbours::doubt(const IpAddress& address, TimeNs now) noexcept {
  Entry* const entry = get(address);
  if (entry != nullptr && entry->known && now >= entry->fresh_until - limits_.fresh_ns + limits_.trusted_ns)
    entry->fresh_until = std::min(entry->fresh_until, now);
}

const MacAddress* Neighbours::known(const IpAddress& address) const noexcept {
  const auto found = places_.find(address);
  return found != places_.end() && entries_[found->second].known ? &entries_[found->second].mac : nullptr;
}

void Neighbours::ask(Entry& entry, TimeNs now) {
  ++entry.asked;
  entry.ask_at = now + limits_.retry_ns;
  next_due_ = std::min(next_due_, entry.ask_at);
  // A known neighbour is asked by unicast (RFC 1122, 2.3.2.1; RFC 4861, 7.3.3).
  if (messages_.size() < messages_max)
    messages_.push_back(
        {{false, mac_, self(entry.address), {}, entry.address}, entry.known ? entry.mac : group_mac(entry.address)});
}

bool Neighbours::is_believed(const NeighbourMessage& message) const noexcept {
  return is_unicast(message.sender) && message.sender != self(message.sender) && is_station(message.sender_mac);
}

void Neighbours::overhear(const NeighbourMessage& message, TimeNs now) {
  const bool is_arp = message.sender.is_v4();
  if (!is_arp && message.reply && !message.router_s) return learn_advertisement(message, now);
  if (!is_believed(message)) return;
  if (!is_arp) return learn_solicitation(message, now);
  // A node that asks for this address will be answered, and most likely gets packets.
  learn(message.sender, message.sender_mac, message.target == self4_ && !message.reply, now);
}

void Neighbours::on_message(const NeighbourMessage& message, TimeNs now) {
  overhear(message, now);
  const IpAddress& own = self(message.target);
  if (message.reply || own.is_unspecified() || message.target != own || messages_.size() >= messages_max) return;
  // A node that is about to take this address is answered before all others.
  MacAddress to = message.sender_mac;
  if (!own.is_v4() && message.sender.is_unspecified())
    to = all_nodes_mac;
  else if (to == MacAddress{} && is_unicast(message.sender) && message.sender != own)
    to = message.reply_to;
  else if (!is_believed(message))
    return;
  if (to != MacAddress{}) messages_.push_back({{true, mac_, own, message.sender_mac, message.sender}, to});
}

void Neighbours::set(Entry& entry, const MacAddress& mac, TimeNs fresh_until) {
  entry.mac = mac;
  entry.known = true;
  entry.fresh_until = fresh_until;
  entry.ask_at = never;
  entry.asked = 0;
  wake(entry, true);
}

void Neighbours::learn(const IpAddress& address, const MacAddress& mac, bool wanted, TimeNs now) {
  Entry* entry = get(address);
  if (entry == nullptr && (!wanted || !make_room(now, false))) return;
  if (entry == nullptr) entry = &add(address);
  set(*entry, mac, now + limits_.fresh_ns);
}

// RFC 4861, 7.2.3 and 6.3.4: the message does not prove reachability, so a new entry is stale, and a known one is
// unchanged.
void Neighbours::learn_solicitation(const NeighbourMessage& message, TimeNs now) {
  Entry* entry = get(message.sender);
  const bool wanted = message.router_s || message.target == self6_;
  if (entry == nullptr && (!wanted || !make_room(now, false))) return;
  if (entry == nullptr) entry = &add(message.sender);
  if (!entry->known || entry->mac != message.sender_mac) set(*entry, message.sender_mac, now);
}

// RFC 4861, 7.2.5.
void Neighbours::learn_advertisement(const NeighbourMessage& message, TimeNs now) {
  Entry* const entry = get(message.sender);
  if (entry == nullptr || message.sender == self6_) return;
  const bool tells_mac = message.sender_mac != MacAddress{};
  if (tells_mac ? !is_station(message.sender_mac) : !entry->known) return;
  const bool is_other = entry->known && tells_mac && entry->mac != message.sender_mac;
  if (is_other && !message.overrides) {
    entry->fresh_until = std::min(entry->fresh_until, now);
    return;
  }
  if (!message.solicited && entry->known && !is_other) return;
  set(*entry, tells_mac ? message.sender_mac : entry->mac, message.solicited ? now + limits_.fresh_ns : now);
}

// Nodes may ask under any number of names: such an entry makes room for used neighbours.
bool Neighbours::make_room(TimeNs now, bool for_use) {
  if (places_.size() < limits_.neighbours_max) return true;
  const auto evict = [&](const auto& may) {
    const auto found = std::ranges::find_if(entries_, [&](const Entry& each) {
      return !each.address.is_unspecified() && each.known && each.ask_at == never && may(each);
    });
    if (found == entries_.end()) return false;
    remove(*found);
    return true;
  };
  // Or any entry unused since it grew old: its use would have asked for it again.
  return (for_use && evict([](const Entry& entry) { return !entry.used; })) ||
         evict([&](const Entry& entry) { return now >= entry.fresh_until; }) ||
         (for_use && evict_unknown(now, [](const Entry&) { return true; }));
}

// A present neighbour answers the first request.
bool Neighbours::make_room_of(std::uint64_t user, TimeNs now) {
  if (user == other_stack) return true;
  const auto is_its = [&](const Entry& entry) { return entry.user == user; };
  const auto unknown = std::ranges::count_if(
      entries_, [&](const Entry& each) { return !each.address.is_unspecified() && !each.known && is_its(each); });
  return static_cast<std::size_t>(unknown) < limits_.unknown_of_user_max || evict_unknown(now, is_its);
}

// The longest waiting one that has not answered its first request.
template <class May>
bool Neighbours::evict_unknown(TimeNs now, const May& may) {
  Entry* oldest = nullptr;
  for (Entry& entry : entries_) {
    if (entry.address.is_unspecified() || entry.known || now < entry.since + limits_.retry_ns || !may(entry)) continue;
    if (oldest == nullptr || entry.since < oldest->since) oldest = &entry;
  }
  if (oldest == nullptr) return false;
  wake(*oldest, false);
  remove(*oldest);
  return true;
}

void Neighbours::wake(Entry& entry, bool found) {
  for (const std::uint32_t flow : entry.waiting) woken_.push_back({flow, entry.address, found});
  waiting_ -= entry.waiting.size();
  entry.waiting.clear();
}

void Neighbours::on_time(TimeNs now) {
  if (now < next_due_) return;
  next_due_ = never;
  for (Entry& entry : entries_) {
    if (entry.address.is_unspecified()) continue;
    if (entry.ask_at <= now && entry.asked >= limits_.tries) {
      if (entry.waiting.empty()) woken_.push_back({no_flow, entry.address, false});
      wake(entry, false);
      remove(entry);
      continue;
    }
    if (entry.ask_at <= now) ask(entry, now);
    next_due_ = std::min(next_due_, entry.ask_at);
  }
}

std::optional<Neighbours::Send> Neighbours::next_message() {
  if (messages_.empty()) return std::nullopt;
  const Send send = messages_.front();
  messages_.pop_front();
  return send;
}

std::optional<Neighbours::Woken> Neighbours::next_woken() {
  if (woken_.empty()) return std::nullopt;
  const Woken woken = woken_.front();
  woken_.pop_front();
  return woken;
}

}  // namespace offpath::tcp
