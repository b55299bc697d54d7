#include "pool/members/kept_objects.h"

#include <utility>
#include <vector>

#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"

namespace offpath::pool {

using service::AskedMemory;
using wire::EntryKind;

Status KeptObjects::open(const std::string& text, uid_t user, TimeNs now, Effects& effects) {
  OFP_ASSIGN(Definition* const definition,
             context_.directory.define(text, user, Directory::Access::write, Directory::By::program, now, effects));
  definition->stays = true;
  return {};
}

void KeptObjects::keep(const Place& place, FramePtr object, Kept kept, TimeNs now, Effects& effects) {
  removals_.erase(place.pool, {place.row_key, place.column_key});
  Put put;
  put.place = place;
  put.frame = std::move(object);
  put.kept = std::move(kept);
  put.owners = Directory::owners(*context_.directory.known(place.pool), place.row_key);
  puts_.start(std::move(put), now, effects);
}

void KeptObjects::forget(const std::string& pool, const FrameTable::Keys& keys, TimeNs now, Effects& effects) {
  context_.table.remove(pool, keys);
  const Definition* const known = context_.directory.known(pool);
  if (known == nullptr) return;
  removals_.add(*known, keys, now, effects);
}

void KeptObjects::forget_all(const std::string& pool, TimeNs now, Effects& effects) {
  puts_.cancel_kept(pool, now, effects);
  for (const FrameTable::Held& held : context_.table.held(pool)) context_.table.remove(pool, held.keys);
  reserves_.remove(pool);
  if (Definition* const known = context_.directory.known(pool); known != nullptr) {
    known->stays = false;
    known->dropped = true;
  }
  removals_.erase_pool(pool);
}

Result<FramePtr> KeptObjects::let_go(const std::string& pool, const FrameTable::Keys& keys) {
  context_.table.let_go(pool, keys);
  if (const auto held = context_.table.held(pool, keys); held && held->frame->unread) return held->frame;
  return fail(Error::not_found, "pool \"{}\" has no object ({}, {}) on disk here", pool, brief(keys.first),
              brief(keys.second));
}

// From this agent, or from the member that reported it.
void KeptObjects::read(const std::string& pool, const FrameTable::Keys& keys, const std::string& member, Read done,
                       TimeNs now, Effects& effects) {
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
  gets_.fetch_part(
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
      [done = std::move(done), charge = std::move(*charge)](Result<QueryMembers::Reply> reply, TimeNs then_now,
                                                            Effects& then) {
        if (!reply) return done(tl::unexpected(std::move(reply).error()), then_now, then);
        done(std::move(reply->frame), then_now, then);
      },
      effects);
}

}  // namespace offpath::pool
