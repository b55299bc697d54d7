// The objects that are kept for a sift pool, so that a killed agent can continue. Each has a name:
//
//   piece   a piece that was taken: kept before it is answered, until all parts of its split were answered
//   split   the pieces of a batch, and the sequences of its parts. It is kept before they are published, so that the
//           same batch, split again, makes the same parts under the same sequences, and their receivers recognise them.
//           The newest split of an element has the whole record; earlier ones are dropped
//   run     a run of tracks, and the pieces and runs that it was made of. It is kept before these are dropped
//
// The element's record, in splits and runs, has the settled pieces of each source. A settled piece whose object still
// exists (its removal was skipped or rolled back) is ignored. Taken pieces are the settled ones and those that exist.
//
// An object is the frame, or the run's memory, with its notes behind it:
//
//   body | zeros, up to a multiple of 8 | notes: the piece's header, or the record | body bytes u64 | notes bytes u32
//   | "OFSK" u32
//
// Read this first in src/sift/kept, then kept_store.h (their place), copies.h, former_life.h (what is read after a
// restart); sift/elements/element_records.h writes the records.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sift/piece.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

// A piece of an element: its source (by position among the members, which never change for the pool), and its sequence.
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

[[nodiscard]] std::string piece_name(ElementId element, const PieceKey& key);
[[nodiscard]] std::string split_name(ElementId element, std::uint64_t number);
[[nodiscard]] std::string run_name(ElementId element, std::uint64_t number);

// The kept objects that were found.
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
  std::vector<Split> open;                    // of which some parts may not be answered
  TakenSequences covers;                      // of a run: its own number and those of the runs that it replaces

  bool operator==(const ElementRecord&) const = default;
};
[[nodiscard]] std::vector<std::byte> encode(const ElementRecord& record);
[[nodiscard]] Result<ElementRecord> decode_record(Bytes bytes);  // arbitrary bytes

// A block: some identifiers of a run with all their rows, which can be read from disk without the rest of the run.
struct RunBlock {
  std::uint64_t rows = 0, keys = 0, first_key = 0, last_key = 0;
  std::uint64_t at = 0, bytes = 0;  // in the run's memory; noted only if they do not follow from the others
  std::uint32_t crc32c = 0;

  bool operator==(const RunBlock&) const = default;
};
static_assert(sizeof(RunBlock) == 56);  // charged to a pool for each block (tracks/track_memory.h)

// A run's notes: its record, its shape, and a frame without rows of the pool's schema. Without blocks it is read whole.
// Where identifiers are long (split/key_form.h), `firsts` has the first one of each block, and the blocks' bytes are
// noted.
struct RunNotes {
  std::vector<std::byte> record, schema;
  std::uint64_t rows = 0, keys = 0;
  std::vector<RunBlock> blocks{};
  std::vector<std::string> firsts{};

  bool operator==(const RunNotes&) const = default;
};
[[nodiscard]] std::vector<std::byte> encode(const RunNotes& notes);
[[nodiscard]] Result<RunNotes> decode_run_notes(Bytes bytes);

// ---- objects

// Whether an unreadable object is lost. Other failures are temporary, read errors included: a corrupt object fails with
// Error::io once, and is not found afterwards.
[[nodiscard]] bool is_lost(Error code) noexcept;

// The largest size of a kept piece beside its frame, for a piece with as many runs of steps as a split makes.
inline constexpr std::uint64_t kept_notes_bytes_max = 8192;

[[nodiscard]] std::uint64_t kept_bytes(std::uint64_t body_bytes, std::uint64_t notes_bytes) noexcept;
// Writes what follows the body. `object` is of kept_bytes().
void write_notes(MutableBytes object, std::uint64_t body_bytes, Bytes notes) noexcept;
struct KeptParts {
  Bytes body, notes;
};
[[nodiscard]] Result<KeptParts> open_kept(Bytes object);
// Only the notes, of an object in memory or on disk; for one on disk it blocks.
[[nodiscard]] Result<std::vector<std::byte>> read_kept_notes(const service::Frame& object);

// The frame and its header in one object. Copies the frame: in a job.
[[nodiscard]] Result<FramePtr> keep_piece(const FramePtr& frame, const PieceHeader& header, const FrameMemory& memory);

}  // namespace offpath::sift
