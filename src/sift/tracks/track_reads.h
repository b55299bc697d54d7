// Reads tracks of this agent's elements for programs and other members, by identifiers: in a job or, if there are few
// rows, at once, so that a small read does not wait behind splits and sorts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/table/waiting_gets.h"
#include "service/effects.h"
#include "sift/tracks/tracks.h"

namespace offpath::sift {

class TrackReads {
 public:
  // The requested tracks, as wire::SiftTracks.
  struct Wanted {
    std::uint32_t element;
    bool all;
    std::int64_t first_step, last_step;
    std::vector<std::uint64_t> identifiers;  // of this element
  };
  using Answer = std::function<void(const pool::Get&, const service::FramePtr&, TimeNs now, service::Effects&)>;

  // `bytes_max`: of one answer. `answer` sends the frame to the program or member that asked.
  TrackReads(std::uint64_t bytes_max, Answer answer) : bytes_max_(bytes_max), answer_(std::move(answer)) {}

  // `tracks` has the wanted elements. `number`, of the sift service, goes into the token of a job.
  [[nodiscard]] Status read(std::uint64_t number, pool::Get get, Wanted wanted, TrackSnapshot tracks,
                            const FrameMemory& memory, TimeNs now, service::Effects& effects);
  [[nodiscard]] bool has(std::uint64_t number) const { return reads_.contains(number); }
  void on_job(std::uint64_t number, const Status& status, TimeNs now, service::Effects& effects);

 private:
  struct Read {
    pool::Get get;
    std::shared_ptr<service::FramePtr> frame;
  };

  std::uint64_t bytes_max_;
  Answer answer_;
  std::unordered_map<std::uint64_t, Read> reads_;
};

}  // namespace offpath::sift
