// Tracks for tests: particles of split/particles.h, sorted as a member has them.
#pragma once

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "sift/split/particles.h"
#include "sift/tracks/tracks.h"

namespace offpath::sift {

// One run of step 3, of `count` particles that are numbered from 0.
inline TrackSnapshot particle_tracks(const std::shared_ptr<const TrackForm>& form, std::uint64_t count,
                                     const FrameMemory& memory) {
  std::vector<std::uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  FramePtr frame = particle_frame(*form->rows, ids, 3, memory);
  RowsView view = form->rows->view({frame->buffer.data(), frame->bytes}).value();
  std::vector<Piece> pieces;
  pieces.push_back({std::move(frame), std::move(view), {{3, count}}});
  TrackSnapshot snapshot(form, 1);
  snapshot.add(0, {TrackRun::sort(form->rows, pieces, memory).value()});
  return snapshot;
}

}  // namespace offpath::sift
