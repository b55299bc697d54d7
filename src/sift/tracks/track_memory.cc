#include "sift/tracks/track_memory.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace offpath::sift {

std::uint64_t TrackMemory::block_bytes() const noexcept {
  constexpr std::uint64_t least = 4 << 10, most = 1 << 20;
  return is_bounded() ? std::clamp(bytes_max() / 256, least, most) : TrackRun::one_block;
}

std::uint64_t TrackMemory::run_bytes_max() const noexcept {
  return is_bounded() ? std::min(bytes_max() / 8, options_.merged_bytes_max) : options_.merged_bytes_max;
}

// ---- runs

void TrackMemory::add(RunPtr run, std::string name, bool stored) {
  const bool on_disk = !run->is_in_memory();
  (on_disk ? disk_bytes_ : memory_bytes_) += run->bytes();
  list_bytes_ += run->list_bytes();
  const TrackRun* const at = run.get();
  runs_.emplace(at, Run{.run = std::move(run), .name = std::move(name), .stored = stored, .on_disk = on_disk});
}

void TrackMemory::retire(const RunPtr& run, Effects& effects) {
  const auto at = runs_.find(run.get());
  Run& retired = at->second;
  if (!retired.on_disk && !retired.leaving) {  // readers have its memory
    memory_bytes_ -= retired.run->bytes();
    list_bytes_ -= retired.run->list_bytes();
    if (retired.stored) sift::add(effects, ForgetEffect{std::move(retired.name)});
    runs_.erase(at);
    return;
  }
  retired.retired = true;
  ++retired_;
  look_again_at_ = 0;
}

void TrackMemory::clear() {
  runs_.clear();
  leaving_.clear();
  memory_bytes_ = disk_bytes_ = list_bytes_ = leaving_bytes_ = taken_bytes_ = lacking_bytes_ = 0;
  no_merge_waits();
  retired_ = 0;
  look_again_at_ = never;
}

// ---- room

// Not while the disk fails or no run can leave memory: a merge could then wait for long.
bool TrackMemory::is_turn_of_merge() const noexcept {
  if (merge_lacking_bytes_ == 0 || sorts_ahead_ < sorts_before_merge || !failure_.empty()) return false;
  return taken_bytes_ != 0 || !leaving_.empty() ||
         std::ranges::any_of(runs_, [](const auto& each) { return may_leave(each.second); });
}

bool TrackMemory::take(std::uint64_t bytes, For what) {
  if (is_bounded()) {
    const bool fits = memory_bytes() + taken_bytes_ + bytes <= bytes_max();
    const bool alone = memory_bytes_ + taken_bytes_ == 0;
    if (what == For::merge) {
      const bool sort_waits = lacking_bytes_ != 0 && !lists_are_full();
      if (!fits || (sort_waits && !is_turn_of_merge())) {
        merge_lacking_bytes_ = bytes;
        return false;
      }
      no_merge_waits();
    } else {
      if (lists_are_full() || !(fits || alone) || is_turn_of_merge()) {
        lacking_bytes_ = std::max(lacking_bytes_, bytes);
        return false;
      }
      lacking_bytes_ = 0;
      if (merge_lacking_bytes_ != 0) ++sorts_ahead_;
    }
  }
  taken_bytes_ += bytes;
  return true;
}

std::string TrackMemory::held_back() const {
  if (!failure_.empty()) return "tracks cannot leave memory: " + failure_;
  if (!is_bounded() || !lists_are_full()) return {};
  return fmt::format(
      "the lists of blocks of {} bytes of tracks on disk have {} bytes of memory, over half of tracks_budget={}: drop "
      "the pool and name one with a larger tracks_budget=",
      disk_bytes_, list_bytes_, bytes_max());
}

std::pair<std::uint64_t, std::uint64_t> TrackMemory::count_runs() const noexcept {
  std::pair<std::uint64_t, std::uint64_t> counts;
  for (const auto& [at, run] : runs_) {
    if (run.retired) continue;
    ++counts.first;
    counts.second += run.run->is_damaged() ? 1 : 0;
  }
  return counts;
}

// ---- leaving memory

bool TrackMemory::may_leave(const Run& run) noexcept {
  return !run.on_disk && !run.leaving && !run.retired && run.run->may_leave();
}

TrackMemory::Runs::iterator TrackMemory::next_to_leave() {
  auto largest = runs_.end();
  for (auto at = runs_.begin(); at != runs_.end(); ++at) {
    const Run& run = at->second;
    if (!may_leave(run)) continue;
    if (largest == runs_.end() || run.run->bytes() > largest->second.run->bytes()) largest = at;
  }
  return largest;
}

void TrackMemory::work(TimeNs now, std::uint64_t& next_token, Effects& effects) {
  if (is_bounded() && lists_are_full() && !std::exchange(lists_told_, true))
    log(LogLevel::error, "pool '{}': programs are held back: {}", options_.settings.pool, held_back());
  if (!is_bounded() || now < rests_until_) return;
  rests_until_ = 0;
  const bool many = memory_bytes() > bytes_max() / 4 * 3;
  const std::uint64_t lacking = std::max(lacking_bytes_, merge_lacking_bytes_);
  if (!many && lacking == 0) return;
  const std::uint64_t others = list_bytes_ + (lacking != 0 ? lacking + taken_bytes_ : bytes_max() / 2);
  const std::uint64_t low = bytes_max() - std::min(bytes_max(), others);
  // With room for one, several at a time could each take a part and all fail.
  const std::size_t at_a_time = failures_ == 0 ? leaving_max : 1;
  while (leaving_.size() < at_a_time && memory_bytes_ - leaving_bytes_ > low) {
    const auto next = next_to_leave();
    if (next == runs_.end()) return;
    Run& run = next->second;
    run.leaving = true;
    run.stored = true;
    leaving_bytes_ += run.run->bytes();
    const std::uint64_t token = next_token++;
    leaving_.emplace(token, next->first);
    sift::add(effects, SpillEffect{token, run.name, run.run->object()});
  }
}

bool TrackMemory::on_spilled(std::uint64_t token, Result<FramePtr> unread, TimeNs now) {
  const auto node = leaving_.extract(token);
  if (!node) return false;
  Run& run = runs_.at(node.mapped());
  run.leaving = false;
  leaving_bytes_ -= run.run->bytes();
  if (unread) {
    memory_bytes_ -= run.run->bytes();
    disk_bytes_ += run.run->bytes();
    run.on_disk = true;
    run.run->leave_memory(std::move(*unread));
    if (!failure_.empty()) log(LogLevel::info, "pool '{}': tracks can leave memory again", options_.settings.pool);
    failures_ = 0;
    failure_.clear();
    rests_until_ = 0;
    return true;
  }
  rests_until_ = options_.retry_at(failures_++, now);
  if (failure_.empty())
    log(LogLevel::error,
        "pool '{}': tracks stay in memory, and programs are held back when tracks have {} bytes (tracks_budget): {}",
        options_.settings.pool, bytes_max(), unread.error().message);
  failure_ = std::move(unread).error().message;
  return true;
}

void TrackMemory::forget_unread(TimeNs now, Effects& effects) {
  if (now < look_again_at_) return;
  for (auto at = runs_.begin(); at != runs_.end() && retired_ > 0;) {
    Run& run = at->second;
    if (!run.retired || run.leaving || (run.on_disk && run.run.use_count() > 1)) {
      ++at;
      continue;
    }
    (run.on_disk ? disk_bytes_ : memory_bytes_) -= run.run->bytes();
    list_bytes_ -= run.run->list_bytes();
    sift::add(effects, ForgetEffect{std::move(run.name)});
    --retired_;
    at = runs_.erase(at);
  }
  look_again_at_ = retired_ > 0 ? deadline_after(now, read_meanwhile_ns) : never;
}

TimeNs TrackMemory::next_deadline() const noexcept {
  const bool waits = is_bounded() && rests_until_ != 0 && leaving_.empty();
  return std::min(look_again_at_, waits ? rests_until_ : never);
}

}  // namespace offpath::sift
