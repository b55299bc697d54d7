// Objects that a service beside this one has in a pool of its own, so that they survive this agent: by the pool's
// owners, its copies and its disk.
#include <algorithm>
#include <utility>

#include "pool/directory/glob.h"
#include "pool/directory/placement.h"
#include "pool/members/pools.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {

using service::AskedMemory;
using wire::EntryKind;

namespace {

constexpr std::size_t removals_max = 1 << 16;  // then the first by name is not asked for again

}  // namespace

Status Pools::open(const std::string& text, uid_t user, TimeNs now, Effects& effects) {
  context_.now = now;
  OFP_ASSIGN(Definition* const definition,
             context_.directory.define(text, user, Access::write, By::program, context_.now, effects));
  definition->stays = true;
  return {};
}

void Pools::set_reserve(Incoming& incoming) const {
  const Reserves::SetAside* const reserve = reserves_.find(incoming.place.pool);
  if (reserve == nullptr || incoming.delivery != 0) return;
  incoming.object.reserve = reserve->memory;
  incoming.object.stays = reserve->stays(incoming.place.column_key);
}

void Pools::keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects) {
  context_.now = now;
  if (removals_.erase({place.pool, {place.row_key, place.column_key}}) != 0)
    context_.counters.removals_waiting = removals_.size();
  Put put;
  put.place = place;
  put.frame = std::move(object);
  put.kept = std::move(kept);
  put.owners = Directory::owners(*context_.directory.known(place.pool), place.row_key);
  start(std::move(put), now, effects);
}

void Pools::forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.remove(pool, keys);
  const Definition* const known = context_.directory.known(pool);
  if (known == nullptr) return;
  // Those that live, and those that would be owners if all of the pool's members did: their disks have it when they are
  // back.
  const PoolOptions& options = known->name.options;
  std::vector<std::string> named = options.members, holders = Directory::owners(*known, keys.first);
  std::ranges::sort(named);
  for (std::string& each : owners_of(known->name.policy, options.replicas, keys.first, named))
    if (std::ranges::find(holders, each) == holders.end()) holders.push_back(std::move(each));
  std::erase(holders, context_.directory.self());
  if (holders.empty()) return;
  const Removed removed{pool, keys};
  if (removals_.size() >= removals_max) removals_.erase(removals_.begin());
  for (const std::string& holder : holders) removals_[removed][holder] = never;
  context_.counters.removals_waiting = removals_.size();
  for (const std::string& holder : holders) ask_removal(removed, holder, effects);
}

void Pools::ask_removal(const Removed& removed, const std::string& member, Effects& effects) {
  if (!context_.directory.is_alive(member)) return;
  const auto& [pool, keys] = removed;
  context_.requests.ask(
      {Asking::Kind::removal, 0, member, {.pool = pool, .keys = keys}}, EntryKind::peer_drop,
      deadline_after(context_.now, context_.options.ask_wait_ns), nullptr, 0,
      [user = std::uint64_t{context_.table.user_of(pool)}, text = context_.directory.text_of(pool),
       row = literal_glob(keys.first),
       column = literal_glob(keys.second)](const AskedMemory&, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerDrop{user, text, row, column}, payload);
      },
      effects);
}

void Pools::on_removal_answer(const Asking& asked, const Status& status) {
  const auto at = removals_.find({asked.get.pool, asked.get.keys});
  if (at == removals_.end()) return;
  if (!status && status.error().code != Error::not_found) {
    context_.due(at->second[asked.member] = deadline_after(context_.now, context_.options.move_retry_ns));
    return;
  }
  at->second.erase(asked.member);
  if (at->second.empty()) removals_.erase(at);
  context_.counters.removals_waiting = removals_.size();
}

void Pools::ask_removals_again(TimeNs now, Effects& effects) {
  std::vector<std::pair<Removed, std::string>> ready;
  for (auto& [removed, members] : removals_)
    for (auto& [member, again] : members)
      if (again <= now) {
        again = never;
        ready.emplace_back(removed, member);
      } else {
        context_.due(again);
      }
  for (const auto& [removed, member] : ready) ask_removal(removed, member, effects);
}

void Pools::forget_all(const std::string& pool, TimeNs now, Effects& effects) {
  context_.now = now;
  std::vector<std::uint64_t> open;
  for (const auto& [number, put] : puts_)
    if (put.kept && put.place.pool == pool) open.push_back(number);
  for (const std::uint64_t number : open)
    finish(number, fail(Error::cancelled, "pool \"{}\" was dropped", pool), effects);
  for (const FrameTable::Held& held : context_.table.held(pool)) context_.table.remove(pool, held.keys);
  unreserve(pool);
  if (Definition* const known = context_.directory.known(pool); known != nullptr) {
    known->stays = false;
    known->dropped = true;
  }
  std::erase_if(removals_, [&](const auto& each) { return each.first.first == pool; });
  context_.counters.removals_waiting = removals_.size();
}

// Here, or of the member that said it has it.
void Pools::read(const std::string& pool, const FrameTable::Keys& keys, const std::string& member, Read done,
                 TimeNs now, Effects& effects) {
  context_.now = now;
  if (const auto held = context_.table.held(pool, keys)) {
    if (!held->frame->unread) return done(held->frame, now, effects);
    return context_.table.read_back(
        held->frame, 0,
        [this, done = std::move(done)](Result<FramePtr> read, Effects& then) {
          done(std::move(read), context_.now, then);
        },
        effects);
  }
  const Definition* const known = context_.directory.known(pool);
  if (member.empty() || known == nullptr)
    return done(
        fail(Error::not_found, "pool \"{}\" has no object ({}, {}) here", pool, brief(keys.first), brief(keys.second)),
        now, effects);
  const uid_t user = context_.table.user_of(pool);
  auto charge = context_.table.charge(user, keys.first.size() + keys.second.size());
  if (!charge) return done(tl::unexpected(std::move(charge).error()), now, effects);
  fetch_part(
      member, user, EntryKind::peer_get, deadline_after(now, context_.options.put_wait_ns), {},
      [user, keys, text = known->text, self = context_.directory.self()](
          const AskedMemory& memory, std::uint64_t delivery, std::vector<std::byte>& payload) {
        wire::encode(wire::PeerGet{.user = user,
                                   .owner = user,
                                   .wait_ns = 0,
                                   .delivery = delivery,
                                   .inbox = memory.inbox,
                                   .reader = self,
                                   .pool = text,
                                   .row_key = keys.first,
                                   .column_key = keys.second},
                     payload);
      },
      [done = std::move(done), charge = std::move(*charge)](Result<Reply> reply, TimeNs then_now, Effects& then) {
        if (!reply) return done(tl::unexpected(std::move(reply).error()), then_now, then);
        done(std::move(reply->frame), then_now, then);
      },
      now, effects);
}

// ---- what another member has of a row

void Pools::list_at(const std::string& member, const std::string& pool, const std::string& row, ListedThere listed,
                    TimeNs now, Effects& effects) {
  context_.now = now;
  // One that this agent has not met yet is not one that has nothing, though the group says not_found as well.
  if (!context_.directory.is_alive(member))
    return listed(fail(Error::peer_lost, "member {} is not there", member), now, effects);
  const std::uint64_t number = context_.numbers.take();
  listings_.emplace(number, ListingThere{pool, row, {}, std::move(listed)});
  ask_listing(number, member, 0, effects);
}

void Pools::ask_listing(std::uint64_t number, const std::string& member, std::uint64_t after, Effects& effects) {
  const ListingThere& listing = listings_.at(number);
  context_.requests.ask(
      {Asking::Kind::listing, number, member}, EntryKind::peer_list,
      deadline_after(context_.now, context_.options.ask_wait_ns), nullptr, 0,
      [user = std::uint64_t{context_.table.user_of(listing.pool)}, after,
       text = context_.directory.text_of(listing.pool),
       row = listing.row](const AskedMemory&, std::vector<std::byte>& payload) {
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
      listing.items.push_back({entry.sequence, entry.bytes, entry.rows, entry.arrow, std::string(entry.row_key),
                               std::string(entry.column_key)});
      after = std::max(after, entry.sequence);
    }
    return listed.more ? after : 0;
  };
  const Result<std::uint64_t> after = take();
  if (after && *after != 0) return ask_listing(number, member, *after, effects);
  const ListingThere done = std::move(listings_.extract(number).mapped());
  if (after)
    done.listed(done.items, context_.now, effects);
  else
    done.listed(tl::unexpected(after.error()), context_.now, effects);
}

}  // namespace offpath::pool
