// Objects that a service beside this one has in a pool of its own, so that they survive this agent: by the pool's owners, its
// copies and its disk.
#include <algorithm>
#include <utility>

#include "pool/pools.h"

namespace offpath::pool {

using mover::AskedMemory;
using wire::EntryKind;

Status Pools::open(const std::string& text, uid_t user, TimeNs now, Effects& effects) {
  now_ = now;
  OFP_TRY(define(text, user, true, effects));
  return {};
}

void Pools::keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects) {
  now_ = now;
  Put put{.place = place, .frame = std::move(object)};
  put.kept = std::move(kept);
  put.owners = owners(definitions_.find(place.pool)->second, place.row_key);
  start(std::move(put), now, effects);
}

// Who did not hear of it, as it was away, has it still when it is back: that does no harm to who asked.
void Pools::forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects) {
  now_ = now;
  table_.remove(pool, keys);
  const auto known = definitions_.find(pool);
  if (known == definitions_.end()) return;
  for (const std::string& owner : owners(known->second, keys.first)) {
    if (owner == self_) continue;
    ask({Asking::Kind::cancel, 0, owner}, EntryKind::peer_drop, deadline_after(now_, options_.ask_wait_ns), nullptr, 0,
        [user = std::uint64_t{table_.user_of(pool)}, text = known->second.text, keys](const AskedMemory&, std::vector<std::byte>& payload) {
          wire::encode(wire::PeerDrop{user, text, keys.first, keys.second}, payload);
        },
        effects);
  }
}

void Pools::forget_all(const std::string& pool, TimeNs now, Effects& effects) {
  now_ = now;
  std::vector<std::uint64_t> open;
  for (const auto& [number, put] : puts_)
    if (put.kept && put.place.pool == pool) open.push_back(number);
  for (const std::uint64_t number : open) finish(number, fail(Error::cancelled, "pool \"{}\" was dropped", pool), effects);
  for (const FrameTable::Held& held : table_.held(pool)) table_.remove(pool, held.keys);
}

// Here, or of the member that said it has it.
void Pools::read(const std::string& pool, const FrameTable::Keys& keys, const std::string& member, Read done, TimeNs now, Effects& effects) {
  now_ = now;
  if (const auto held = table_.held(pool, keys)) {
    if (!held->frame->unread) return done(held->frame, now, effects);
    return table_.read_back(held->frame, 0, [this, done = std::move(done)](Result<FramePtr> read, Effects& then) { done(std::move(read), now_, then); },
                            effects);
  }
  const auto known = definitions_.find(pool);
  if (member.empty() || known == definitions_.end())
    return done(fail(Error::not_found, "pool \"{}\" has no object ({}, {}) here", pool, brief(keys.first), brief(keys.second)), now, effects);
  const uid_t user = table_.user_of(pool);
  fetch_part(member, user, EntryKind::peer_get, deadline_after(now, options_.put_wait_ns), {},
             [user, keys, text = known->second.text, self = self_](const AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload) {
               wire::encode(wire::PeerGet{.user = user, .wait_ns = 0, .delivery = delivery, .inbox = memory.inbox, .reader = self, .pool = text,
                                          .row_key = keys.first, .column_key = keys.second},
                            payload);
             },
             [done = std::move(done)](Result<Reply> reply, TimeNs then_now, Effects& then) {
               if (!reply) return done(tl::unexpected(std::move(reply).error()), then_now, then);
               done(std::move(reply->frame), then_now, then);
             },
             now, effects);
}

// ---- what another member has of a row

void Pools::list_at(const std::string& member, const std::string& pool, const std::string& row, ListedThere listed, TimeNs now, Effects& effects) {
  now_ = now;
  // One that this agent has not met yet is not one that has nothing, though the group says not_found as well.
  if (!std::ranges::binary_search(alive_, member)) return listed(fail(Error::peer_lost, "member {} is not there", member), now, effects);
  const std::uint64_t number = next_number_++;
  listings_.emplace(number, ListingThere{pool, row, {}, std::move(listed)});
  ask_listing(number, member, 0, effects);
}

void Pools::ask_listing(std::uint64_t number, const std::string& member, std::uint64_t after, Effects& effects) {
  const ListingThere& listing = listings_.at(number);
  ask({Asking::Kind::listing, number, member}, EntryKind::peer_list, deadline_after(now_, options_.ask_wait_ns), nullptr, 0,
      [user = std::uint64_t{table_.user_of(listing.pool)}, after, text = text_of(listing.pool), row = listing.row](const AskedMemory&,
                                                                                                               std::vector<std::byte>& payload) {
        wire::encode(wire::PeerList{user, after, text, row, "*"}, payload);
      },
      effects);
}

void Pools::on_listing(std::uint64_t number, const std::string& member, Result<Answer> answer, Effects& effects) {
  ListingThere& listing = listings_.at(number);
  const auto take = [&]() -> Result<std::uint64_t> {
    if (!answer && answer.error().code == Error::not_found) return 0;  // it has nothing of the pool
    OFP_TRY(answer);
    wire::Listed listed{};
    OFP_TRY(wire::decode(answer->payload, listed));
    std::uint64_t after = 0;
    for (const wire::ListedEntry& entry : listed.entries) {
      listing.items.push_back({entry.sequence, entry.bytes, entry.rows, std::string(entry.row_key), std::string(entry.column_key)});
      after = std::max(after, entry.sequence);
    }
    return listed.more ? after : 0;
  };
  const Result<std::uint64_t> after = take();
  if (after && *after != 0) return ask_listing(number, member, *after, effects);
  const ListingThere done = std::move(listings_.extract(number).mapped());
  if (after) done.listed(done.items, now_, effects);
  else done.listed(tl::unexpected(after.error()), now_, effects);
}

}  // namespace offpath::pool
