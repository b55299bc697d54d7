// Elements of a kept pool after a restart of the agent. Their splits and runs are read first (kept/former_life.h). Then
// their pieces come back like offers, when their stage has room: first those of splits with unanswered parts, which are
// split again in the same way; then all others. A read that may succeed later is tried again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sift/arrival/arrivals.h"
#include "sift/arrival/charges.h"
#include "sift/kept/former_life.h"
#include "sift/publish/publications.h"
#include "sift/tracks/track_memory.h"

namespace offpath::sift {

class Restoring {
 public:
  // The references outlive this. `self`: this agent's position among the members.
  Restoring(const SiftOptions& options, const Geometry& geometry, std::uint32_t self, PoolForm& form,
            const Charges& charges, StageBudgets& budgets, Elements& elements, Arrivals& arrivals,
            Publications& publications, TrackMemory& memory, std::uint64_t& next_token) noexcept
      : options_(options),
        geometry_(geometry),
        self_(self),
        form_(form),
        charges_(charges),
        budgets_(budgets),
        elements_(elements),
        arrivals_(arrivals),
        publications_(publications),
        memory_(memory),
        next_token_(next_token) {}

  // ---- splits and runs
  void begin(const std::vector<KeptItem>& items, Effects& effects);
  [[nodiscard]] bool is_under_way() const noexcept { return former_ != nullptr; }
  void on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects) {
    former_->on_read(token, std::move(object), now, effects);
  }
  [[nodiscard]] bool has_job(std::uint64_t token) const noexcept {
    return former_ != nullptr && former_->has_job(token);
  }
  void on_job(std::uint64_t token, const Status& status, TimeNs now) { former_->on_job(token, status, now); }
  // True, once: all of them are read, the elements have them, and the pieces wait for room.
  [[nodiscard]] bool complete(Effects& effects);

  // ---- pieces that come back
  // The piece was read and checked, or is lost; its element then has it, or goes without it. False: it is read again.
  [[nodiscard]] bool take(std::uint64_t id, const Status& status, TimeNs now);

  void on_time(TimeNs now, Effects& effects);
  [[nodiscard]] TimeNs next_deadline() const noexcept;
  void clear();

 private:
  void restore_runs(Element& element, std::vector<FormerLife::Run> runs, Effects& effects);
  void take_up(Element& element, const ElementRecord& record);
  [[nodiscard]] std::deque<Replay> replays_of(Element& element, ElementRecord record,
                                              const std::vector<std::pair<KeptName, KeptItem>>& pieces);
  void restore_piece(Element& element, const KeptItem& item, const PieceKey& key, Effects& effects);
  void queue(Element& element, const KeptItem& item, const PieceKey& key, std::uint64_t replay);
  void skip_empty(Element& element);

  const SiftOptions& options_;
  const Geometry& geometry_;
  std::uint32_t self_;
  PoolForm& form_;
  const Charges& charges_;
  StageBudgets& budgets_;
  Elements& elements_;
  Arrivals& arrivals_;
  Publications& publications_;
  TrackMemory& memory_;
  std::uint64_t& next_token_;
  std::unique_ptr<FormerLife> former_;            // until it is read
  std::multimap<TimeNs, std::uint64_t> retries_;  // pieces that are to be read again
};

}  // namespace offpath::sift
