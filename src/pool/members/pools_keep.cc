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

Status Pools::open(const std::string& text, uid_t user, TimeNs now, Effects& effects) {
  context_.now = now;
  OFP_ASSIGN(Definition* const definition,
             context_.directory.define(text, user, Access::write, By::program, context_.now, effects));
  definition->stays = true;
  return {};
}

void Pools::keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects) {
  context_.now = now;
  removals_.erase(place.pool, {place.row_key, place.column_key});
  Put put;
  put.place = place;
  put.frame = std::move(object);
  put.kept = std::move(kept);
  put.owners = Directory::owners(*context_.directory.known(place.pool), place.row_key);
  puts_.start(std::move(put), now, effects);
}

void Pools::forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects) {
  context_.now = now;
  context_.table.remove(pool, keys);
  const Definition* const known = context_.directory.known(pool);
  if (known == nullptr) return;
  removals_.add(*known, keys, now, effects);
}

void Pools::forget_all(const std::string& pool, TimeNs now, Effects& effects) {
  context_.now = now;
  puts_.cancel_kept(pool, now, effects);
  for (const FrameTable::Held& held : context_.table.held(pool)) context_.table.remove(pool, held.keys);
  unreserve(pool);
  if (Definition* const known = context_.directory.known(pool); known != nullptr) {
    known->stays = false;
    known->dropped = true;
  }
  removals_.erase_pool(pool);
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

void Pools::list_at(const std::string& member, const std::string& pool, const std::string& row, ListedThere listed,
                    TimeNs now, Effects& effects) {
  context_.now = now;
  listings_.ask(member, pool, row, std::move(listed), now, effects);
}

}  // namespace offpath::pool
