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
// before it were answered, so the carrier need not keep an order, and an agent that restarts in between misses none.
//
// Kept pools (journal.h). A piece is kept before it is answered, a split before its parts are published, and a run of
// tracks before its pieces are dropped. A killed agent gets the names of its objects (restore) and continues as the
// same source with the same sequences. A split is charged for its pieces and parts until all its parts were answered,
// so that everything that was under way has room after a restart too.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sift/effects.h"
#include "sift/element.h"
#include "sift/flushes.h"
#include "sift/kept/former_life.h"
#include "sift/publish/publications.h"
#include "sift/sift_options.h"
#include "sift/split/geometry.h"

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
  // All flushes that are under way fail: the marks of a member that died do not come.
  void end_flushes(const Failure& why, Effects& effects) { flushes_.end_all(tl::unexpected(why), effects); }
  void on_time(TimeNs now, Effects& effects);

  // ---- a kept pool
  // All kept objects of this member's elements, and the life under which they publish, which is the same for all. Until
  // is_restored() the only other calls are on_read, on_job, on_time and drop.
  void restore(std::uint64_t incarnation, const std::vector<KeptItem>& items, TimeNs now, Effects& effects);
  [[nodiscard]] bool is_restored() const noexcept { return restored_; }
  void on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects);
  void on_kept(std::uint64_t token, const Status& status, TimeNs now, Effects& effects);

  [[nodiscard]] TimeNs next_deadline() const noexcept;

  // The pool is dropped: open requests are answered with Error::cancelled, and nothing is published any more.
  void drop(Effects& effects);

  // The current tracks, of all elements here or of those with these identifiers; any thread may read them.
  [[nodiscard]] TrackSnapshot tracks() const;
  [[nodiscard]] TrackSnapshot tracks(std::span<const std::uint64_t> identifiers) const;

  [[nodiscard]] const Geometry& geometry() const noexcept { return geometry_; }
  // Fails if this member does not hold stage 1, which takes puts.
  [[nodiscard]] Status may_put() const;
  [[nodiscard]] const StageCounters& counters(std::uint32_t stage) const noexcept { return budgets_[stage]; }
  [[nodiscard]] std::uint64_t track_bytes() const noexcept { return track_bytes_; }
  [[nodiscard]] const std::shared_ptr<const TrackForm>& form() const noexcept {
    return form_.tracks;
  }  // null before the first piece
  // Nothing is under way or waits for an age; there are only tracks.
  [[nodiscard]] bool idle() const noexcept;

 private:
  // A piece that is still to be taken.
  struct Arrival {
    std::vector<std::uint64_t> tokens;  // the members that offer it; the newest last
    PieceHeader header;
    std::uint64_t bytes = 0, charge = 0;
    FramePtr frame;
    std::optional<RowsView> view;  // once it is checked
    bool put = false;              // by a program: no sequence, no seal
    bool admitted = false;
    std::uint64_t pulled_from = 0;  // a token, while it is pulled
    bool pulling = false;
    std::uint64_t order = 0;  // in its element, once it has one
    // ---- for a kept pool
    PieceKey key{};
    bool kept = false;         // its object is kept: `frame` is that
    bool restored = false;     // taken before this agent restarted
    std::uint64_t replay = 0;  // and it belongs to this split of that life
  };
  struct Stage {
    std::deque<std::uint64_t> waiting;  // arrivals
    std::deque<ElementId> due;
    std::uint32_t jobs = 0;
  };
  enum class Work { check, keep, split, sort, merge };
  struct Job {
    Work work;
    ElementId element;
    std::uint64_t arrival = 0;
    std::shared_ptr<Batch> batch{};
    std::vector<std::shared_ptr<const TrackRun>> merged{};
    std::shared_ptr<FramePtr> object{};  // keep: the piece's
    std::string name{};                  // of the kept object
  };
  struct Timer {
    enum class Of { age, job, read } of;
    ElementId element;
    std::uint64_t token = 0;
  };

  Sift(const SiftOptions& options, Geometry geometry, std::uint32_t self);

  // ---- sift.cc: arriving pieces
  [[nodiscard]] Stage& stage(std::uint32_t number) noexcept { return stages_[number - 1]; }
  [[nodiscard]] bool last(ElementId id) const noexcept { return id.stage == options_.settings.track_stage(); }
  [[nodiscard]] Element& element(ElementId id) { return elements_[id]; }
  [[nodiscard]] std::uint64_t charge_of(std::uint64_t frame_bytes, std::uint64_t rows) const noexcept;
  [[nodiscard]] std::uint64_t parts_overhead(std::uint32_t stage) const noexcept;
  [[nodiscard]] Status check_size(std::uint64_t charge) const;
  [[nodiscard]] Status check_put(std::string_view row_key, const FramePtr& frame, Arrival& arrival);
  [[nodiscard]] Status check_offer(const PieceHeader& header, std::uint64_t bytes);
  void queue(Arrival arrival);
  void admit(std::uint32_t stage_number, TimeNs now, Effects& effects);
  void arrived(std::uint64_t id, TimeNs now, Effects& effects);
  [[nodiscard]] Status check_frame(Arrival& arrival);
  void take(std::uint64_t id, TimeNs now, Effects& effects);
  void pull(Arrival& arrival, Effects& effects);
  void refuse(std::uint64_t id, const Failure& why, Effects& effects);
  void forget(std::uint64_t id);
  void release(std::uint32_t stage_number, std::uint64_t bytes) { budgets_.release(stage_number, bytes); }

  // ---- sift_split.cc: departing pieces
  void consider(Element& element, TimeNs now);
  void set_due(Element& element);
  void settle(std::uint32_t stage_number, TimeNs now, Effects& effects);
  [[nodiscard]] bool relieve(std::uint32_t stage_number);
  [[nodiscard]] bool begin_split(Element& element, Effects& effects);
  [[nodiscard]] std::shared_ptr<Batch> next_batch(Element& element) const;
  void end_split(Element& element, const Status& status, TimeNs now, Effects& effects);
  void begin_merge(Element& element, Effects& effects);
  void end_merge(const Job& job, const Status& status, Effects& effects);
  void publish_parts(Element& element, Batch& batch);
  void pass_flushes(Element& element) { flushes_.pass(element, form_.overhead_bytes); }

  // ---- sift_keep.cc: objects that are kept before they take effect
  [[nodiscard]] bool keeps() const noexcept { return options_.kept; }
  [[nodiscard]] static std::string name_of(ElementId element, const PieceKey& key) {
    return KeptName{KeptName::Kind::piece, element, key, 0}.text();
  }
  void begin_keep(std::uint64_t id, Effects& effects);
  void end_keep(const Job& job, const Status& status, TimeNs now, Effects& effects);
  void keep_result(std::uint64_t token, Job job, Effects& effects);
  [[nodiscard]] ElementRecord record_of(const Element& element, const std::vector<HeldPiece>& settled) const;
  [[nodiscard]] RunNotes notes_of(const ElementRecord& record);
  void number_batch(Element& element, Batch& batch) const;
  [[nodiscard]] RunNotes notes_of_merge(Element& element, Batch& batch,
                                        const std::vector<std::shared_ptr<const TrackRun>>& runs);
  void plan_parts(Element& element, Batch& batch);
  [[nodiscard]] static std::uint64_t sequence_of(const Element& element, const Batch& batch, std::uint32_t part);
  void settle_batch(Element& element, Batch& batch, Effects& effects);
  void answered(Element& element, std::uint64_t split, Effects& effects);
  void cover(Element& element, const Job& job, Effects& effects);

  // ---- sift_keep.cc: objects from before this agent restarted
  void end_restore_if_complete(TimeNs now, Effects& effects);
  void restore_runs(Element& element, std::vector<FormerLife::Run> runs, Effects& effects);
  void take_up(Element& element, const ElementRecord& record);
  [[nodiscard]] std::deque<Replay> replays_of(Element& element, ElementRecord record,
                                              const std::vector<std::pair<KeptName, KeptItem>>& pieces);
  void restore_piece(Element& element, const KeptItem& item, const PieceKey& key, Effects& effects);
  void queue_again(Element& element, const KeptItem& item, const PieceKey& key, std::uint64_t replay);
  [[nodiscard]] Status reopen(Arrival& arrival, FramePtr object);
  void reopened(std::uint64_t id, Result<FramePtr> object, TimeNs now, Effects& effects);
  void skip_empty(Element& element);
  [[nodiscard]] static std::shared_ptr<Batch> replayed_batch(Element& element);

  SiftOptions options_;
  Geometry geometry_;
  std::uint32_t self_ = 0;  // position among the members
  PoolForm form_;
  bool dropped_ = false;

  StageBudgets budgets_;
  std::vector<Stage> stages_;
  Elements elements_;
  Publications publications_;
  Flushes flushes_;
  std::unordered_map<std::uint64_t, Arrival> arrivals_;
  std::unordered_map<std::uint64_t, std::uint64_t> arrival_of_token_;
  std::unordered_map<std::uint64_t, Job> jobs_;
  std::multimap<TimeNs, Timer> timers_;
  std::uint64_t next_token_ = 1;  // of arrivals and jobs

  std::uint64_t track_bytes_ = 0;

  bool restored_;
  std::unique_ptr<FormerLife> former_;  // until it is read
  std::unordered_map<std::uint64_t, Job> keeping_;
  std::uint64_t put_sequence_ = 0;
  std::vector<std::byte> schema_;  // a frame without rows, for the notes of runs
};

}  // namespace offpath::sift
