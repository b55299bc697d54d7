// Reads what this agent kept for a sift pool before it restarted: the newest split and the runs of each element, which
// say which pieces are needed. The pieces themselves come back later, when their stages have room
// (elements/restoring.h). A read that may succeed later is tried again.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sift/effects.h"
#include "sift/element.h"
#include "sift/sift_options.h"

namespace offpath::sift {

class FormerLife {
 public:
  struct Run {
    ElementRecord record;
    std::shared_ptr<const TrackRun> run;
  };

  // The references outlive this. `form` is learnt from the first run that is read, unless it is known.
  FormerLife(const SiftOptions& options, PoolForm& form, std::uint64_t& next_token)
      : options_(options), form_(form), next_token_(next_token) {}

  // Asks for the records of the elements that this member (a position) holds. Later records of the elements get larger
  // numbers than these, readable or not.
  void begin(const std::vector<KeptItem>& items, const Geometry& geometry, std::uint32_t self, Elements& elements,
             Effects& effects);
  void on_read(std::uint64_t token, Result<FramePtr> object, TimeNs now, Effects& effects);
  [[nodiscard]] bool has_job(std::uint64_t token) const noexcept { return opening_.contains(token); }
  void on_job(std::uint64_t token, const Status& status, TimeNs now);
  void on_time(TimeNs now, Effects& effects);

  [[nodiscard]] TimeNs next_deadline() const noexcept { return retries_.empty() ? never : retries_.begin()->first; }
  [[nodiscard]] bool is_complete() const noexcept { return reading_.empty() && opening_.empty(); }

  std::vector<std::pair<KeptName, KeptItem>> pieces;  // whose sources are members
  std::map<ElementId, ElementRecord> splits;
  std::map<ElementId, std::vector<Run>> runs;

 private:
  struct Opening {
    KeptName name;
    std::shared_ptr<Run> run;
    std::shared_ptr<std::shared_ptr<const TrackForm>> form;  // of the run
  };

  [[nodiscard]] bool is_read_in_parts(const KeptName& name) const noexcept;
  void read_later(std::uint64_t token, const KeptName& name, TimeNs now);
  [[nodiscard]] Status open(const KeptName& name, Result<FramePtr> object, Effects& effects);
  void note_loss(const KeptName& name, const Failure& why) const;

  const SiftOptions& options_;
  PoolForm& form_;
  std::uint64_t& next_token_;
  std::map<std::uint64_t, KeptName> reading_;  // by token
  std::map<std::uint64_t, Opening> opening_;   // by the token of its job
  std::multimap<TimeNs, std::uint64_t> retries_;
};

}  // namespace offpath::sift
