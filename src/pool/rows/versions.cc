#include "pool/rows/versions.h"

#include "base/log.h"

namespace offpath::pool {

std::optional<std::uint64_t> Versions::not_wanted(const Place& place, PutId& id) {
  const FrameTable::KeysView keys{place.row_key, place.column_key};
  // From a member that does not know yet that the object is gone.
  if (id.moved && removals_.contains(place)) return 0;
  const PutId* const here = context_.table.id_of(place.pool, keys);
  if (here == nullptr) {
    if (!id.moved) id.view = context_.directory.view();
    return std::nullopt;
  }
  if (*here == id && *here != PutId{})
    return here->counter >= id.counter ? std::optional<std::uint64_t>{0} : std::nullopt;
  const bool stays = here->version() > id.version();
  if (!id.moved) {
    if (!stays || here->counter == 0) return std::nullopt;
    return here->knows(id.version()) ? 0 : here->counter;
  }
  if (!stays) {
    if (here->version() == id.version()) return 0;
    return std::nullopt;
  }
  // A put into an empty place replaces an older object that a move brings later: no conflict in the same view. But an
  // object put after this view began comes from members with another view: this side may not have noticed a partition.
  if (!here->knows(id.version()) && (here->view != context_.directory.view() || id.counter > view_began_))
    note_conflict(place, *here, id);
  context_.table.learn(place.pool, keys, id);
  return 0;
}

// Takes an accepted object of another member's put.
Status Versions::take(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects,
                      const RecordPtr& file) {
  const PutId* const here = context_.table.id_of(place.pool, FrameTable::KeysView{place.row_key, place.column_key});
  const std::optional<PutId> replaced =
      here != nullptr && id.moved && !id.knows(here->version()) ? std::optional(*here) : std::nullopt;
  takes_moved_ = id.moved;
  const Status taken = context_.table.put(place, std::move(frame), now, effects, id, file);
  takes_moved_ = false;
  if (!taken) return taken;
  if (replaced) note_conflict(place, id, *replaced);
  return {};
}

Status Versions::restore(const Place& place, FramePtr frame, const PutId& id, TimeNs now, Effects& effects) {
  takes_moved_ = true;
  Status put = context_.table.put(place, std::move(frame), now, effects, id);
  takes_moved_ = false;
  return put;
}

void Versions::note_conflict(const Place& place, const PutId& stays, const PutId& goes) {
  constexpr std::uint64_t logged_max = 16;              // until members change again; all are counted
  if (stays.counter == 0 || goes.counter == 0) return;  // stored before puts had versions
  ++context_.counters.conflicts;
  if (++logged_ > logged_max) return;
  log(LogLevel::warning,
      "pool \"{}\": object ({}, {}) was put on both sides of a partition: put {}.{:016x} is kept, put {}.{:016x} is "
      "discarded{}",
      place.pool, brief(place.row_key), brief(place.column_key), stays.counter, stays.writer, goes.counter, goes.writer,
      logged_ == logged_max ? "; further ones are counted only (pool_conflicts_total)" : "");
}

}  // namespace offpath::pool
