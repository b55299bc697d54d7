// Rows whose owners change when members come and go.
//
// Of the owners before, the first that still lives sends each of its rows to the owners that have not got it; an owner before
// that is none any more sends to all, and drops its own when they have it. What arrives does not replace what is there: that
// was put later, at its new place.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "pool/placement.h"
#include "pool/pools.h"

namespace offpath::pool {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) { return std::ranges::find(names, name) != names.end(); }

}  // namespace

void Pools::plan_moves(const std::vector<std::string>& anew) {
  for (const auto& known : definitions_) {
    const std::string& name = known.first;
    const Definition& definition = known.second;
    if (definition.name.policy == Policy::local) continue;
    for (const FrameTable::Held& held : table_.held(name)) {
      const std::vector<std::string> now = owners(definition, held.keys.first);
      std::vector<std::string> before =
          owners_of(definition.name.policy, definition.name.options.replicas, held.keys.first, definition.before);
      std::erase_if(before, [&](const std::string& owner) { return !contains(definition.members, owner) || contains(anew, owner); });
      const bool stays = contains(now, self_);
      std::vector<std::string> to;
      for (const std::string& owner : now)
        if (owner != self_ && (!stays || !contains(before, owner))) to.push_back(owner);
      const bool first = before.empty() || before.front() == self_;
      if (!to.empty() && (first || !stays)) moves_.push_back({name, held.keys, std::move(to), !stays});
    }
  }
}

void Pools::start_moves(TimeNs now, Effects& effects) {
  while (moving_ < options_.moves_max && !moves_.empty()) {
    Move move = std::move(moves_.front());
    moves_.pop_front();
    const auto known = definitions_.find(move.pool);
    const auto held = table_.held(move.pool, move.keys);
    if (known == definitions_.end() || !held) continue;  // dropped meanwhile
    ++moving_;
    if (!held->frame->unread) {
      start_move(move, held->frame, now, effects);
      continue;
    }
    table_.read_back(held->frame, deadline_after(now, options_.put_wait_ns),
                     [this, move](Result<FramePtr> read, Effects& then) {
                       if (read) return start_move(move, *read, now_, then);
                       log(LogLevel::warning, "a row that belongs to other members stays here: {}", read.error().message);
                       --moving_;
                       due(now_);
                     },
                     effects);
  }
}

void Pools::start_move(const Move& move, FramePtr frame, TimeNs now, Effects& effects) {
  const auto known = definitions_.find(move.pool);
  const auto held = table_.held(move.pool, move.keys);
  if (known == definitions_.end() || !held) {  // dropped while it was read back
    --moving_;
    return due(now);
  }
  Put put{.place = {move.pool, move.keys.first, move.keys.second, table_.user_of(move.pool), held->keep, held->hidden},
          .text = known->second.text, .frame = std::move(frame), .moves = true, .drop_after = move.drop_after,
          .recovered = table_.is_recovered(move.pool, move.keys), .owners = move.to};
  start(std::move(put), now, effects);
}

}  // namespace offpath::pool
