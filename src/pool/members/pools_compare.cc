// What owners have is compared a while after members have changed, when rows have moved.
//
// Moves follow what each member believed of the others when they began. Members learn of a change at different times,
// so a row may have gone to one that is no owner any more, or have stayed where it was: each then sends what it has and
// does not own to the owners. What it does own it compares with each other owner, by digests of keys and versions; what
// differs it offers, and the other one takes what it has not, or has of an earlier put. Objects that members drop by
// themselves (`keep`, `ttl`) are not compared: they would come back.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pool/directory/placement.h"
#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using wire::EntryKind;

namespace {

std::size_t part_of(const FrameTable::Keys& keys) noexcept { return hash_of(keys.first) % wire::compared_parts; }

std::uint64_t digest_of(const FrameTable::Held& held) {
  std::string text = held.keys.first;
  text += '\0';
  text += held.keys.second;
  for (const std::uint64_t number : {held.id.counter, held.id.writer})
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
  return hash_of(text);
}

}  // namespace

void Pools::compare_later(TimeNs at) noexcept { context_.due(compare_at_ = at); }

bool Pools::is_compared(const Definition& definition, const FrameTable::Held& held) const noexcept {
  return !held.hidden && held.keep == 0 && definition.name.options.ttl_ns == 0;
}

// Their moves failed, and are made again by and by.
std::set<FrameTable::Keys> Pools::tried_again(const std::string& pool) const {
  std::set<FrameTable::Keys> keys;
  moves_.each(pool, [&](const Move& move) {
    if (move.failures > 0) keys.insert(move.keys);
  });
  return keys;
}

// Sums, so that the order of objects does not matter.
const std::map<std::string, Pools::Digests>& Pools::digests_of(const Definition& definition) {
  Compared& compared = compared_[definition.name.name];
  if (compared.view == context_.directory.view() &&
      context_.now < deadline_after(compared.at, context_.options.compare_wait_ns))
    return compared.digests;
  compared = {context_.now, context_.directory.view(), {}};
  for (const FrameTable::Held& held : context_.table.held(definition.name.name)) {
    if (!is_compared(definition, held)) continue;
    const std::vector<std::string> all = Directory::owners(definition, held.keys.first);
    if (std::ranges::find(all, context_.directory.self()) == all.end()) continue;
    const std::uint64_t digest = digest_of(held);
    for (const std::string& owner : all)
      if (owner != context_.directory.self()) compared.digests[owner][part_of(held.keys)] += digest;
  }
  return compared.digests;
}

void Pools::compare(TimeNs now, Effects& effects) {
  if (!reading_.empty() || !moving_.empty() || moves_.first() <= now || context_.directory.is_joining() ||
      comparing_ > 0)
    return compare_later(now + context_.options.retry_ns);
  compare_at_ = never;
  compared_.clear();
  for (const auto& [name, definition] : context_.directory.all()) {
    if (definition.name.policy == Policy::local) continue;
    const std::set<FrameTable::Keys> tried = tried_again(name);
    for (const FrameTable::Held& held : context_.table.held(name)) {
      std::vector<std::string> all = Directory::owners(definition, held.keys.first);
      if (!all.empty() && std::ranges::find(all, context_.directory.self()) == all.end() && !tried.contains(held.keys))
        moves_.add({name, held.keys, std::move(all), true});
    }
    for (const auto& [member, digests] : digests_of(definition)) {
      ++comparing_;
      Asking asking{Asking::Kind::compare, context_.directory.view(), member};
      asking.get.pool = name;
      context_.requests.ask(
          std::move(asking), EntryKind::peer_compare, deadline_after(now, context_.options.ask_wait_ns), nullptr, 0,
          [user = std::uint64_t{context_.table.user_of(name)}, view = Directory::view_of(definition),
           reader = context_.directory.self(), text = definition.text,
           digests = digests](const service::AskedMemory&, std::vector<std::byte>& payload) {
            wire::encode(wire::PeerCompare{user, view, reader, text, std::as_bytes(std::span(digests))}, payload);
          },
          effects);
    }
  }
}

Status Pools::serve_compare(ChannelNumber channel, const channel::Entry& request, Effects& effects) {
  wire::PeerCompare asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_TRY(check_not_local(asked.pool));
  OFP_ASSIGN(
      const Definition* const definition,
      context_.directory.define_of_member(asked.pool, asked.user, asked.user, Access::read, context_.now, effects));
  if (Directory::view_of(*definition) != asked.view)
    return fail(Error::would_block, "member {} knows of other members of pool \"{}\" than {}",
                context_.directory.self(), definition->name.name, asked.reader);
  Digests theirs;
  std::memcpy(theirs.data(), asked.digests.data(), sizeof theirs);
  const auto& all = digests_of(*definition);
  const auto own = all.find(std::string(asked.reader));
  std::uint64_t differs = 0;
  for (std::size_t part = 0; part < theirs.size(); ++part)
    if (theirs[part] != (own != all.end() ? own->second[part] : 0)) differs |= 1ull << part;
  // The other sends what it has and this member lacks. What it lacks itself, this member finds by asking in its turn.
  if (differs != 0) compare_later(deadline_after(context_.now, context_.options.move_retry_ns));
  effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{differs}});
  return {};
}

void Pools::on_compared(const Asking& asked, Result<std::uint64_t> differs) {
  --comparing_;
  const Definition* const known = context_.directory.known(asked.get.pool);
  if (asked.number != context_.directory.view() || known == nullptr) return;  // they are compared again
  if (!differs) return compare_later(deadline_after(context_.now, context_.options.move_retry_ns));
  if (*differs == 0) return;
  const std::set<FrameTable::Keys> tried = tried_again(asked.get.pool);
  for (const FrameTable::Held& held : context_.table.held(asked.get.pool)) {
    if ((*differs >> part_of(held.keys) & 1) == 0 || !is_compared(*known, held) || tried.contains(held.keys)) continue;
    const std::vector<std::string> all = Directory::owners(*known, held.keys.first);
    if (std::ranges::find(all, context_.directory.self()) == all.end() ||
        std::ranges::find(all, asked.member) == all.end())
      continue;
    moves_.add({asked.get.pool, held.keys, {asked.member}, false});
  }
  context_.due(context_.now);
}

}  // namespace offpath::pool
