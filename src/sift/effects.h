// What the sift service wants done. As elsewhere: events and the time are arguments, the caller owns the list, carries
// it out in order, and reports how each ended.
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

// There is room for this offer: fetch its frame, then on_pulled with the same token.
struct PullEffect {
  explicit PullEffect(std::uint64_t of) : token(of) {}
  std::uint64_t token;
};

// The outcome of on_put or on_offer. Without a failure the rows are this agent's responsibility now: `stored`.
struct AnswerEffect {
  AnswerEffect(std::uint64_t of, Status outcome) : token(of), status(std::move(outcome)) {}
  std::uint64_t token;
  Status status;
};

// To be offered to `member`, whose answer is on_published with the same token; a carrier that hears nothing says so
// with a failure, and the piece comes again with the same sequence. The header's bytes are encode()'s.
struct PublishEffect {
  PublishEffect(std::uint64_t of, std::string to, PieceHeader head, FramePtr rows)
      : token(of), member(std::move(to)), header(std::move(head)), frame(std::move(rows)) {}
  std::uint64_t token;
  std::string member;
  PieceHeader header;
  FramePtr frame;  // null for the mark of a flush
};

// Work of more than 100 us, off the loop. `run` touches nothing but what it captured; then on_job with the same token.
struct JobEffect {
  JobEffect(std::uint64_t of, std::function<Status()> work) : token(of), run(std::move(work)) {}
  std::uint64_t token;
  std::function<Status()> run;
};

// What this agent holds of the tracks has all that was put anywhere before the flush; or the deadline has passed.
struct FlushedEffect {
  FlushedEffect(std::uint64_t of, Status outcome) : token(of), status(std::move(outcome)) {}
  std::uint64_t token;
  Status status;
};

// ---- of a pool that is kept (journal.h)

// The object is to be stored under the name, wherever that is, so that it survives this agent; then on_kept with the
// same token. After a failure it may be there or not. Null: there was no memory for it, which is such a failure.
struct KeepEffect {
  KeepEffect(std::uint64_t of, std::string as, FramePtr what)
      : token(of), name(std::move(as)), object(std::move(what)) {}
  std::uint64_t token;
  std::string name;
  FramePtr object;
};

// What was kept under the name is not needed any more. That it is there all the same after a restart does no harm.
struct ForgetEffect {
  explicit ForgetEffect(std::string what) : name(std::move(what)) {}
  std::string name;
};

// What was found under the name is wanted, then on_read with the same token.
struct ReadEffect {
  ReadEffect(std::uint64_t of, std::string what) : token(of), name(std::move(what)) {}
  std::uint64_t token;
  std::string name;
};

using Effect = std::variant<PullEffect, AnswerEffect, PublishEffect, JobEffect, FlushedEffect, KeepEffect, ForgetEffect,
                            ReadEffect>;
// They have constructors because clang before 16 cannot make aggregates in place.
// filled in place (std::in_place_type): GCC 12 warns of what moving a variant does not read
using Effects = std::vector<Effect>;

}  // namespace offpath::sift
