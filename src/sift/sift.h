// The sift service of one pool on one agent: a state machine.
//
//   put        on_put: a program's frame, into this agent's element of stage 1
//   offered    on_offer: a piece another agent published; admitted (AdmitEffect) when its stage has room, in the order
//              of offers; taken (StoredEffect) once, however often it is offered
//   split      an element with a threshold of bytes, or an old piece, or before a flush, splits: one job
//   published  the parts, each to an owner of the next stage's element, again and again until it is answered
//   kept       by the elements of the last stage, as tracks (tracks.h)
//
// Memory. Each stage has a budget of its own on each agent. A piece is charged when it is admitted, before it is
// pulled, with everything it may need: itself and its share of the parts. So an admitted piece can always be split: a
// stage waits only for its own jobs and the answers of the next stage, never for memory of an earlier one. The last
// stage waits for its own jobs alone. By induction every stage gets its memory back, and credits cannot deadlock in a
// circle of agents. The memory that one split needs beside its rows (heads and padding of its parts) is kept free for
// one split at a time. If the budget is full of elements that are all below the threshold, the largest is split.
//
// Flush. All members are asked to flush, under one number that grows. An element of stage 1 splits its pieces, then
// publishes a mark to every element it can reach. An element passes the flush on when the marks of all its sources have
// arrived and the pieces it had then are split. An element of the last stage is done when it has sorted the pieces
// before the marks. Marks are pieces without rows, under the number of the next piece. A mark is sent when all pieces
// before it were answered, so the carrier need not keep an order, and an agent that restarts in between misses no
// piece.
//
// Kept pools (journal.h). A piece is kept before it is answered, a split before its parts are published, and a run of
// tracks before its pieces are dropped. A killed agent gets the names of its objects (restore) and continues as the
// same source with the same sequences. A split is charged for its pieces and parts until all its parts were answered,
// so that everything that was under way has room after a restart too.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sift/arrival/arrivals.h"
#include "sift/arrival/charges.h"
#include "sift/arrival/piece_checks.h"
#include "sift/effects.h"
#include "sift/element.h"
#include "sift/elements/batches.h"
#include "sift/elements/due_elements.h"
#include "sift/elements/element_records.h"
#include "sift/elements/restoring.h"
#include "sift/elements/track_merges.h"
#include "sift/flushes.h"
#include "sift/publish/publications.h"
#include "sift/sift_options.h"
#include "sift/split/geometry.h"
#include "sift/tracks/track_memory.h"

namespace offpath::sift {

class Sift {
 public:
  // `members` are the pool's, sorted, and this agent is one of them.
  [[nodiscard]] static Result<std::unique_ptr<Sift>> make(const SiftOptions& options, std::vector<std::string> members);

  // The caller chooses tokens of on_put, on_offer and on_flush, which differ while they are open.
  void on_put(std::uint64_t token, std::string_view row_key, FramePtr frame, TimeNs now, Effects& effects);
  // `frame` if it needs no pull because this agent published it.
  void on_offer(std::uint64_t token, PieceHeader header, std::uint64_t bytes, FramePtr frame, TimeNs now,
                Effects& effects);
  void on_pulled(std::uint64_t token, Result<FramePtr> frame, TimeNs now, Effects& effects);
  void on_offer_gone(std::uint64_t token, TimeNs now,
                     Effects& effects);  // the member that offered it is gone: no answer, no pull
  void on_published(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);
  void on_job(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);
  void on_flush(std::uint64_t token, std::uint64_t flush, TimeNs deadline, TimeNs now, Effects& effects);
  // Fails all flushes under way: the marks of a dead member will not come.
  void end_flushes(const Failure& why, Effects& effects) { flushes_.end_all(tl::unexpected(why), effects); }
  void on_time(TimeNs now, Effects& effects);

  // ---- a kept pool
  // All kept objects of this member's elements, and the life under which they publish, which is the same for all. Until
  // is_restored() the only other calls are on_read, on_job, on_time and drop.
  void restore(std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now, Effects& effects);
  [[nodiscard]] bool is_restored() const noexcept { return restored_; }
  void on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects);
  void on_kept(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);
  // The end of a SpillEffect: the frame of the object on disk.
  void on_spilled(std::uint64_t token, Result<FramePtr> unread, TimeNs now, Effects& effects);

  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // The pool is dropped: open requests are answered with Error::cancelled, and publishing stops.
  void drop(Effects& effects);

  // The current tracks of all elements here, or of those with these ascending indices; any thread may read them.
  [[nodiscard]] TrackSnapshot tracks() const;
  [[nodiscard]] TrackSnapshot tracks(std::span<const std::uint32_t> elements) const;

  [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
  // Fails if this member does not hold stage 1, which takes puts.
  [[nodiscard]] Status may_put() const { return checks_.may_put(); }
  [[nodiscard]] const StageCounters& counters(std::uint32_t stage) const noexcept { return budgets_[stage]; }
  [[nodiscard]] const TrackMemory& track_memory() const noexcept { return track_memory_; }
  [[nodiscard]] const std::shared_ptr<const TrackForm>& form() const noexcept {
    return form_.tracks;
  }  // null before the first piece
  // No work is under way, and no piece waits for its age; there are only tracks.
  [[nodiscard]] bool idle() const noexcept;

 private:
  enum class Work { check, reopen, keep, split, sort, merge };
  struct Job {
    Work work;
    ElementId element;
    std::uint64_t arrival = 0;
    std::shared_ptr<Batch> batch{};
    TrackMerges::Runs merged{};
    std::shared_ptr<FramePtr> object{};  // keep: the piece's
    std::string name{};                  // of the kept object
  };

  Sift(const SiftOptions& options, Geometry geometry, std::uint32_t self);

  [[nodiscard]] bool keeps() const noexcept { return options_.kept; }
  [[nodiscard]] bool last(ElementId id) const noexcept { return id.stage == options_.settings.track_stage(); }
  [[nodiscard]] Element& element(ElementId id) { return elements_[id]; }
  // Does the work that may have become possible in a stage: memory was freed, or a piece arrived.
  void settle(std::uint32_t stage, TimeNs now, Effects& effects);
  void start(Job job, std::function<Status()> run, Effects& effects);

  // ---- pieces that arrive
  void admit(std::uint32_t stage, TimeNs now, Effects& effects);
  void arrived(std::uint64_t id, TimeNs now, Effects& effects);
  void take(std::uint64_t id, TimeNs now, Effects& effects);
  void refuse(std::uint64_t id, const Failure& why, Effects& effects);
  void forget_form_without_rows();

  // ---- splits, sorts and merges
  [[nodiscard]] bool begin_split(Element& element, Effects& effects);
  [[nodiscard]] bool begin_splits(std::uint32_t stage, Effects& effects);
  void end_split(Element& element, const Status& status, TimeNs now, Effects& effects);
  [[nodiscard]] bool begin_merges(TimeNs now, Effects& effects);
  void end_merge(const Job& job, const Status& status, TimeNs now, Effects& effects);
  void publish_parts(Element& element, Batch& batch);
  void pass_flushes(Element& element, TimeNs now, Effects& effects);

  // ---- a kept pool: pieces and results are kept before they take effect
  void begin_keep(std::uint64_t id, Effects& effects);
  void end_keep(const Job& job, const Status& status, Effects& effects);
  [[nodiscard]] Status open_kept_piece(Arrival& arrival, const FramePtr& object) const;
  void keep_result(std::uint64_t token, Job job, Effects& effects);
  [[nodiscard]] FramePtr record_of(Element& element, Batch& batch);

  // ---- a kept pool: after a restart
  void go_on_if_restored(TimeNs now, Effects& effects);
  void reopened(std::uint64_t id, Result<FramePtr> object, TimeNs now, Effects& effects);
  void end_reopen(std::uint64_t id, const Status& status, TimeNs now, Effects& effects);

  SiftOptions options_;
  Geometry geometry_;
  std::uint32_t self_ = 0;  // position among the members
  PoolForm form_;
  bool dropped_ = false, restored_;
  std::uint64_t next_token_ = 1;    // of arrivals, jobs, reads and objects that leave memory
  std::uint64_t put_sequence_ = 0;  // of kept pieces of programs

  Charges charges_;
  StageBudgets budgets_;
  Elements elements_;
  Arrivals arrivals_;
  PieceChecks checks_;
  Publications publications_;
  Flushes flushes_;
  TrackMemory track_memory_;
  TrackMerges merges_;
  DueElements due_;
  Batches batches_;
  ElementRecords records_;
  Restoring restoring_;
  std::unordered_map<std::uint64_t, Job> jobs_, keeping_;  // that run; whose results are being kept
};

}  // namespace offpath::sift
