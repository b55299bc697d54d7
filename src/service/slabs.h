// Memory of small objects. Each is a page of a slab, so tens of thousands of them take tens of mappings and no
// descriptor. A slab belongs to one user, as a buffer does.
//
// Slabs are shared anonymous memory: no descriptor leads to them. A reader that is to map an object of a slab gets a
// sealed copy (Buffer::copy), so it sees neither what lies beside the object nor what comes to its page later. Nor are
// they on the list of lasting memory: a card that registered a slab would pin all of it, and go on writing to pages
// that were returned to the kernel.
//
//   used      holds an object
//   warm      was given back; its memory is there for the next object
//   leaving   was given back; a job returns its memory to the kernel
//   fresh     takes no memory
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::service {

// Not thread-safe: BufferCache's lock is held for all of it but `release`.
class Slabs {
 public:
  static constexpr std::uint64_t slab_bytes = 4 << 20, object_bytes_max = page_bytes;

  struct Slab {
    std::byte* data = nullptr;
    uid_t user = 0;
    std::uint32_t used = 0, leaving = 0;
    std::vector<std::uint16_t> warm, fresh;  // the next one last

    [[nodiscard]] bool in_use() const noexcept { return used + leaving > 0; }
    [[nodiscard]] bool has_room() const noexcept { return !warm.empty() || !fresh.empty(); }
    [[nodiscard]] std::uint64_t warm_bytes() const noexcept { return warm.size() * page_bytes; }
  };
  struct Run {  // pages side by side
    std::byte* data;
    std::uint64_t bytes;
  };

  // One of the user's with room, those in use first; may be null.
  [[nodiscard]] Slab* with_room(uid_t user) noexcept;
  [[nodiscard]] Result<Slab*> make(uid_t user);
  [[nodiscard]] Slab* idle() noexcept;  // any that is not in use; may be null
  [[nodiscard]] Slab& of(const std::byte* page) noexcept;
  // `warm`: the page's memory is there already.
  [[nodiscard]] std::byte* take(Slab& slab, bool& warm) noexcept;
  void give_back(Slab& slab, std::byte* page, bool keep_warm);
  // The slab came out of use: others of its user are filled before it.
  void rest(Slab& slab) noexcept;
  // The mapping is the caller's from now on.
  [[nodiscard]] Run remove(Slab& slab) noexcept;
  [[nodiscard]] std::uint64_t warm_bytes() const noexcept { return warm_bytes_; }

  // What is leaving, for a job; `released` when it is done.
  [[nodiscard]] std::vector<Run> take_leaving();
  static void release(const Run& run) noexcept;
  void released(Slab& slab, const Run& run);

 private:
  std::map<const std::byte*, Slab> slabs_;     // by where they begin
  std::map<uid_t, std::vector<Slab*>> roomy_;  // all that have room; the next one to be filled is the last
  std::vector<std::byte*> leaving_;
  std::uint64_t warm_bytes_ = 0;
};

}  // namespace offpath::service
