#include "pool/rows/comparisons.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pool/directory/placement.h"
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

bool is_compared(const Definition& definition, const FrameTable::Held& held) noexcept {
  return !held.hidden && held.keep == 0 && definition.name.options.ttl_ns == 0;
}

}  // namespace

// Sums, so that the order of objects does not matter.
const std::map<std::string, Comparisons::Digests>& Comparisons::digests_of(const Definition& definition, TimeNs now) {
  Compared& compared = compared_[definition.name.name];
  if (compared.view == context_.directory.view() && now < deadline_after(compared.at, context_.options.compare_wait_ns))
    return compared.digests;
  compared = {now, context_.directory.view(), {}};
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

void Comparisons::on_time(TimeNs now, Effects& effects) {
  if (now < at_) return;
  if (!moves_.is_idle(now) || context_.directory.is_joining() || asked_ > 0)
    return later(now + context_.options.retry_ns);
  at_ = never;
  compared_.clear();
  for (const auto& [name, definition] : context_.directory.all()) {
    if (context_.directory.is_own(definition)) continue;
    const std::set<FrameTable::Keys> tried = moves_.failed(name);
    for (const FrameTable::Held& held : context_.table.held(name)) {
      std::vector<std::string> all = Directory::owners(definition, held.keys.first);
      if (!all.empty() && std::ranges::find(all, context_.directory.self()) == all.end() && !tried.contains(held.keys))
        moves_.add({name, held.keys, std::move(all), true});
    }
    for (const auto& [member, digests] : digests_of(definition, now)) {
      ++asked_;
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

Status Comparisons::serve(ChannelNumber channel, const channel::Entry& request, TimeNs now, Effects& effects) {
  wire::PeerCompare asked{};
  OFP_TRY(wire::decode(request.payload, asked));
  OFP_TRY(context_.directory.may_be_named(asked.pool));
  OFP_ASSIGN(
      const Definition* const definition,
      context_.directory.define_of_member(asked.pool, asked.user, asked.user, Directory::Access::read, now, effects));
  if (Directory::view_of(*definition) != asked.view)
    return fail(Error::would_block, "member {} knows of other members of pool \"{}\" than {}",
                context_.directory.self(), definition->name.name, asked.reader);
  Digests theirs;
  std::memcpy(theirs.data(), asked.digests.data(), sizeof theirs);
  const auto& all = digests_of(*definition, now);
  const auto own = all.find(std::string(asked.reader));
  std::uint64_t differs = 0;
  for (std::size_t part = 0; part < theirs.size(); ++part)
    if (theirs[part] != (own != all.end() ? own->second[part] : 0)) differs |= 1ull << part;
  // The other member sends objects that this member lacks. Objects that the other lacks are found by this member's own
  // comparison.
  if (differs != 0) later(deadline_after(now, context_.options.move_retry_ns));
  effects.push_back(service::ReplyEffect{channel, request.ticket, wire::Done{differs}});
  return {};
}

void Comparisons::on_answer(const Asking& asked, Result<std::uint64_t> differs, TimeNs now) {
  --asked_;
  const Definition* const known = context_.directory.known(asked.get.pool);
  if (asked.number != context_.directory.view() || known == nullptr) return;  // they are compared again
  if (!differs) return later(deadline_after(now, context_.options.move_retry_ns));
  if (*differs == 0) return;
  const std::set<FrameTable::Keys> tried = moves_.failed(asked.get.pool);
  for (const FrameTable::Held& held : context_.table.held(asked.get.pool)) {
    if ((*differs >> part_of(held.keys) & 1) == 0 || !is_compared(*known, held) || tried.contains(held.keys)) continue;
    const std::vector<std::string> all = Directory::owners(*known, held.keys.first);
    if (std::ranges::find(all, context_.directory.self()) == all.end() ||
        std::ranges::find(all, asked.member) == all.end())
      continue;
    moves_.add({asked.get.pool, held.keys, {asked.member}, false});
  }
  context_.due(now);
}

}  // namespace offpath::pool
