// What is kept of a sift pool, so that an agent that was killed goes on where it stood. Each thing is one object under
// a name:
//
//   piece   a piece that was taken: kept before it is answered, until what it was split into was answered
//   split   how a batch of pieces was split: which they were, and under which sequences its parts are published. It is
//           kept before they are, so that the same batch, split again, makes the same parts under the same sequences,
//           and who took them before knows them. The newest one of an element says all there is to know; those before
//           it are dropped
//   run     a run of tracks, and which pieces and former runs it was made of. It is kept before these are dropped
//
// The element's record, in splits and runs, says of each source what is settled: which pieces went on. A piece of those
// that is still there, as its removal was not done or was undone, is none any more. So taken is what is settled and
// what is there.
//
// An object is the frame, or the run's memory, with its notes behind it:
//
//   body | zeros, up to a multiple of 8 | notes: the piece's header, or the record | body bytes u64 | notes bytes u32
//   | "OFSK" u32
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sift/piece.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

// A piece of an element: whose (by position among the members, which are those of the pool for ever), and which.
struct PieceKey {
  std::uint32_t source = 0;
  std::uint64_t incarnation = 0, sequence = 0;

  auto operator<=>(const PieceKey&) const = default;
};

struct KeptName {
  enum class Kind { piece, split, run } kind = Kind::piece;
  ElementId element;
  PieceKey piece;            // of a piece
  std::uint64_t number = 0;  // of an element's splits and runs, which grow

  [[nodiscard]] std::string text() const;
  [[nodiscard]] static std::optional<KeptName> parse(std::string_view text);
  bool operator==(const KeptName&) const = default;
};

// What was found to be kept.
struct KeptItem {
  std::string name;
  std::uint64_t bytes = 0, rows = 0;
};

struct ElementRecord {
  struct Life {
    std::uint64_t incarnation = 0;
    TakenSequences settled;
    bool operator==(const Life&) const = default;
  };
  struct Source {
    std::uint32_t source = 0;
    std::vector<Life> lives;  // oldest first
    std::vector<std::uint64_t> forgotten;
    bool operator==(const Source&) const = default;
  };
  struct Split {
    std::uint64_t number = 0;
    std::vector<PieceKey> pieces;                                // in the order in which they are split
    std::vector<std::pair<std::uint32_t, std::uint64_t>> parts;  // number and sequence
    bool operator==(const Split&) const = default;
  };

  std::uint64_t number = 0;
  std::vector<Source> sources;
  std::vector<std::uint64_t> next_sequences;  // of a split's parts, by number
  std::vector<Split> open;                    // parts of which may not be answered
  TakenSequences covers;                      // of a run: numbers of those it has taken the place of, and its own

  bool operator==(const ElementRecord&) const = default;
};
[[nodiscard]] std::vector<std::byte> encode(const ElementRecord& record);
[[nodiscard]] Result<ElementRecord> decode_record(Bytes bytes);  // any bytes whatsoever

// A run's notes: its record, its shape, and a frame without rows of the pool's schema.
struct RunNotes {
  std::vector<std::byte> record, schema;
  std::uint64_t rows = 0, keys = 0;

  bool operator==(const RunNotes&) const = default;
};
[[nodiscard]] std::vector<std::byte> encode(const RunNotes& notes);
[[nodiscard]] Result<RunNotes> decode_run_notes(Bytes bytes);

// ---- objects

// Whether what could not be read is lost. All else passes, read errors too: a corrupt object fails with Error::io once,
// and is not found from then on.
[[nodiscard]] bool is_lost(Error code) noexcept;

// Of a piece with as many runs of steps as a split makes: what a kept one has beside its frame, at most.
inline constexpr std::uint64_t kept_notes_bytes_max = 8192;

[[nodiscard]] std::uint64_t kept_bytes(std::uint64_t body_bytes, std::uint64_t notes_bytes) noexcept;
// Writes what follows the body. `object` is of kept_bytes().
void write_notes(MutableBytes object, std::uint64_t body_bytes, Bytes notes) noexcept;
struct KeptParts {
  Bytes body, notes;
};
[[nodiscard]] Result<KeptParts> open_kept(Bytes object);

// The frame and its header in one object. Copies the frame: in a job.
[[nodiscard]] Result<FramePtr> keep_piece(const FramePtr& frame, const PieceHeader& header, const FrameMemory& memory);

}  // namespace offpath::sift
