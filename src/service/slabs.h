// Memory of small objects. Each is a page of a slab, so tens of thousands of them take tens of mappings and no
// descriptors. Like a buffer, a slab belongs to one user.
//
// Slabs are shared anonymous memory without a descriptor. A reader that needs to map an object of a slab gets a sealed
// copy (Buffer::copy), so it sees neither neighbouring objects nor later contents of the page. Slabs are not in the
// list of lasting memory: a card that registered a slab would pin all of it, and would still write to pages that were
// returned to the kernel.
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

// Not thread-safe: BufferCache holds its lock for everything except `release`.
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
  struct Run {  // adjacent pages
    std::byte* data;
    std::uint64_t bytes;
  };

  // A slab of the user with room, preferably in use; may be null.
  [[nodiscard]] Slab* with_room(uid_t user) noexcept;
  [[nodiscard]] Result<Slab*> make(uid_t user);
  [[nodiscard]] Slab* idle() noexcept;  // any unused slab; may be null
  [[nodiscard]] Slab& of(const std::byte* page) noexcept;
  // `warm`: the page already takes memory.
  [[nodiscard]] std::byte* take(Slab& slab, bool& warm) noexcept;
  void give_back(Slab& slab, std::byte* page, bool keep_warm);
  // The slab is no longer in use: other slabs of its user are filled first.
  void rest(Slab& slab) noexcept;
  // The caller takes over the mapping.
  [[nodiscard]] Run remove(Slab& slab) noexcept;
  [[nodiscard]] std::uint64_t warm_bytes() const noexcept { return warm_bytes_; }

  // The pages that are leaving, for a job, which then calls `released`.
  [[nodiscard]] std::vector<Run> take_leaving();
  static void release(const Run& run) noexcept;
  void released(Slab& slab, const Run& run);

 private:
  std::map<const std::byte*, Slab> slabs_;     // by address
  std::map<uid_t, std::vector<Slab*>> roomy_;  // all slabs with room; the next one to be filled is last
  std::vector<std::byte*> leaving_;
  std::uint64_t warm_bytes_ = 0;
};

}  // namespace offpath::service
