// Effects of one sift pool: those of every service that it needs (service/effects.h), and its own. Events and the time
// are arguments; the caller owns the list, carries it out in order, and reports the result of each effect.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "service/effects.h"
#include "sift/piece.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

using service::JobEffect;  // then on_job with the same token
// The outcome of on_put or on_offer. Without a failure this agent is responsible for the rows: `stored`.
using service::StoredEffect;

// There is room for this offer: fetch its frame, then call on_pulled with the same token.
struct AdmitEffect {
  std::uint64_t token;
};

// Offer the piece to `member`; its answer is on_published with the same token. A carrier without an answer reports a
// failure, and the piece is published again with the same sequence. The header's bytes are encode()'s.
struct PublishEffect {
  std::uint64_t token;
  std::string member;
  PieceHeader header;
  FramePtr frame;  // null for the mark of a flush
};

// This agent's part of the tracks has all rows that were put anywhere before the flush; or the deadline has passed.
struct FlushedEffect {
  std::uint64_t token;
  Status status;
};

// ---- for a kept pool (kept/journal.h)

// Store the object under the name so that it survives this agent; then call on_kept with the same token. After a
// failure it may exist nevertheless. Null: no memory, which counts as a failure.
struct KeepEffect {
  std::uint64_t token;
  std::string name;
  FramePtr object;
};

// The object under the name is no longer needed. If it still exists after a restart, it does no harm.
struct ForgetEffect {
  std::string name;
};

// The object under the name is requested; then call on_read with the same token. `unread`: if it is on disk here, its
// frame is enough.
struct ReadEffect {
  std::uint64_t token;
  std::string name;
  bool unread = false;
};

// ---- for a pool whose tracks leave memory

// Store the object under the name on this agent's disk, if it is not there; then call on_spilled with the same token
// and the frame that reads it from there. ForgetEffect removes it.
struct SpillEffect {
  std::uint64_t token;
  std::string name;
  FramePtr object;
};

using Effect = std::variant<AdmitEffect, StoredEffect, PublishEffect, JobEffect, FlushedEffect, KeepEffect,
                            ForgetEffect, ReadEffect, SpillEffect>;
using Effects = std::vector<Effect>;

// In place: GCC 12 warns about moving a variant.
template <class Kind>
void add(Effects& effects, Kind effect) {
  effects.emplace_back(std::in_place_type<Kind>, std::move(effect));
}

}  // namespace offpath::sift
