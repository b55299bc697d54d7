// Effects of the sift service. Events and the time are arguments; the caller owns the list, carries it out in order,
// and reports the result of each effect.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "sift/piece.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

// There is room for this offer: fetch its frame, then call on_pulled with the same token.
struct PullEffect {
  explicit PullEffect(std::uint64_t of) : token(of) {}
  std::uint64_t token;
};

// The outcome of on_put or on_offer. Without a failure this agent is responsible for the rows: `stored`.
struct AnswerEffect {
  AnswerEffect(std::uint64_t of, Status outcome) : token(of), status(std::move(outcome)) {}
  std::uint64_t token;
  Status status;
};

// To be offered to `member`, whose answer is on_published with the same token. A carrier without an answer reports a
// failure, and the piece is published again with the same sequence. The header's bytes are encode()'s.
struct PublishEffect {
  PublishEffect(std::uint64_t of, std::string to, PieceHeader head, FramePtr rows)
      : token(of), member(std::move(to)), header(std::move(head)), frame(std::move(rows)) {}
  std::uint64_t token;
  std::string member;
  PieceHeader header;
  FramePtr frame;  // null for the mark of a flush
};

// Work of more than 100 us, off the loop. `run` touches only its captures; then on_job with the same token.
struct JobEffect {
  JobEffect(std::uint64_t of, std::function<Status()> work) : token(of), run(std::move(work)) {}
  std::uint64_t token;
  std::function<Status()> run;
};

// This agent's part of the tracks has everything that was put anywhere before the flush; or the deadline has passed.
struct FlushedEffect {
  FlushedEffect(std::uint64_t of, Status outcome) : token(of), status(std::move(outcome)) {}
  std::uint64_t token;
  Status status;
};

// ---- for a kept pool (journal.h)

// Store the object under the name so that it survives this agent; then call on_kept with the same token. After a
// failure it may exist nevertheless. Null: there was no memory for it, which counts as a failure.
struct KeepEffect {
  KeepEffect(std::uint64_t of, std::string as, FramePtr what)
      : token(of), name(std::move(as)), object(std::move(what)) {}
  std::uint64_t token;
  std::string name;
  FramePtr object;
};

// The object under the name is no longer needed. If it still exists after a restart, it does no harm.
struct ForgetEffect {
  explicit ForgetEffect(std::string what) : name(std::move(what)) {}
  std::string name;
};

// The object under the name is requested; then call on_read with the same token.
struct ReadEffect {
  ReadEffect(std::uint64_t of, std::string what) : token(of), name(std::move(what)) {}
  std::uint64_t token;
  std::string name;
};

using Effect = std::variant<PullEffect, AnswerEffect, PublishEffect, JobEffect, FlushedEffect, KeepEffect, ForgetEffect,
                            ReadEffect>;
// Constructors, because clang before 16 cannot make aggregates in place. Filled in place (std::in_place_type): GCC 12
// warns about moving a variant.
using Effects = std::vector<Effect>;

}  // namespace offpath::sift
