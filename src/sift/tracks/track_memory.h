// The runs of tracks of one pool on one agent: their bytes in memory and, with a bound (tracks_budget=), which of them
// leave memory for the disk.
//
//   sort          begins when there is room for its run, or memory has no other. A batch without room waits with
//                 its pieces, which are charged to the stage: so a full disk holds back programs
//   merge         begins when there is room and no sort waits, or when as many sorts have begun before it as make it
//                 worth while; then sorts wait for it. So merges go on however fast programs put, and a sort waits for
//                 one merge at most
//   leave         from three quarters of the bound down to a half, and as far as a batch needs that waits: the largest
//                 run first, because small ones are merged soon
//   forget        a merged run is removed from the disk after its last reader
//
// A failing disk is not tried for a while; meanwhile everything stays in memory.
//
// The list of a run's blocks, which stays in memory when the run is on disk, is charged too. Lists cannot leave: when
// they have half of the bound, the pool takes no more rows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "sift/effects.h"
#include "sift/sift_options.h"
#include "sift/tracks/track_run.h"

namespace offpath::sift {

class TrackMemory {
 public:
  using RunPtr = std::shared_ptr<const TrackRun>;
  static constexpr std::size_t leaving_max = 4;                      // at a time
  static constexpr TimeNs read_meanwhile_ns = 100 * millisecond_ns;  // to look again whether it still is

  // The reference outlives this.
  explicit TrackMemory(const SiftOptions& options) : options_(options) {}

  [[nodiscard]] bool is_bounded() const noexcept { return bytes_max() != 0; }
  [[nodiscard]] std::uint64_t bytes_max() const noexcept { return options_.settings.tracks_budget_bytes; }
  // Bytes of a block of a run, and of the largest merged run.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept;
  [[nodiscard]] std::uint64_t run_bytes_max() const noexcept;
  // The most bytes that the list of blocks of a run of so many bytes takes. Of a block and the next one, one is at
  // least half full.
  [[nodiscard]] std::uint64_t list_bytes_max(std::uint64_t run_bytes, const KeyForm& key) const noexcept {
    return (2 * (run_bytes / block_bytes()) + 2) * TrackRun::list_bytes_max(key);
  }

  // ---- runs
  // `name`: of its object. `kept`: there is such an object already.
  void add(RunPtr run, std::string name, bool kept);
  // The run was merged into another one.
  void retire(const RunPtr& run, Effects& effects);
  void clear();

  // ---- room for a run that is to be made
  enum class For : std::uint8_t { sort, merge };
  static constexpr std::uint32_t sorts_before_merge = 4;
  // False: there is no room, and runs leave memory to make it.
  [[nodiscard]] bool take(std::uint64_t bytes, For what);
  void no_merge_waits() noexcept { merge_lacking_bytes_ = sorts_ahead_ = 0; }
  void give_back(std::uint64_t bytes) noexcept { taken_bytes_ -= bytes; }

  // Removes merged runs without readers, if it is time to look. Call it before take(): it makes room.
  void forget_unread(TimeNs now, Effects& effects);

  // ---- leaving memory
  void work(TimeNs now, std::uint64_t& next_token, Effects& effects);
  // False: another token.
  bool on_spilled(std::uint64_t token, Result<FramePtr> unread, TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return memory_bytes() + disk_bytes_; }
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept { return memory_bytes_ + list_bytes_; }
  [[nodiscard]] std::uint64_t list_bytes() const noexcept { return list_bytes_; }  // of these
  [[nodiscard]] std::uint64_t disk_bytes() const noexcept { return disk_bytes_; }  // there alone
  // The reason why no run leaves memory; empty if runs do.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  // The reason why pieces do not become tracks; empty if they do.
  [[nodiscard]] std::string held_back() const;
  // Runs that are not merged into others, and those of them with a lost block.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> count_runs() const noexcept;

 private:
  struct Run {
    RunPtr run;
    std::string name;
    bool stored = false;   // there is an object of that name, or may be
    bool leaving = false;  // under way
    bool retired = false;
    bool on_disk = false;  // there alone
  };
  using Runs = std::map<const TrackRun*, Run>;

  [[nodiscard]] static bool may_leave(const Run& run) noexcept;
  [[nodiscard]] Runs::iterator next_to_leave();
  [[nodiscard]] bool is_turn_of_merge() const noexcept;
  [[nodiscard]] bool lists_are_full() const noexcept { return list_bytes_ > bytes_max() / 2; }

  const SiftOptions& options_;
  Runs runs_;
  std::map<std::uint64_t, const TrackRun*> leaving_;  // by token
  std::uint64_t memory_bytes_ = 0, disk_bytes_ = 0, leaving_bytes_ = 0, taken_bytes_ = 0;
  std::uint64_t list_bytes_ = 0;
  std::uint64_t lacking_bytes_ = 0, merge_lacking_bytes_ = 0;  // of a batch, and of a merge, that waits
  std::uint32_t sorts_ahead_ = 0;                              // begun while a merge waited
  bool lists_told_ = false;
  std::size_t retired_ = 0;
  std::uint32_t failures_ = 0;  // in a row
  TimeNs rests_until_ = 0, look_again_at_ = never;
  std::string failure_;
};

}  // namespace offpath::sift
