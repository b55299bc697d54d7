// Views and runs (string_view, binary_view, list_view, large_list_view, run_end_encoded) laid out as frames have them:
// their values one after the other, in memory of the caller's own. Everything nested in them is laid out with them,
// unless its values lie side by side already; then they are shown where they are, as flatten() shows all others.
//
// It takes two passes over a batch, because only the values tell how many bytes it takes:
//
//   OwnMemory counted(bytes_max);  flatten(layout, batch, view, counted);   checks everything, writes nothing
//   OwnMemory own(memory);         flatten(layout, batch, view, own);       `memory` has counted.bytes()
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "frame/flatten.h"

namespace offpath::frame {

class OwnMemory {
 public:
  // Spans (see below) that a column may need at once, at 24 bytes: one for each run, and for each list that does not
  // lie behind the one before it. They take heap: 768 MiB at the most, twice that while their vector grows.
  static constexpr std::uint64_t spans_max_default = std::uint64_t{1} << 25;

  // Counts up to `bytes_max`, which also bounds the time that a batch takes: views may show the same bytes many times.
  explicit OwnMemory(std::uint64_t bytes_max, std::uint64_t spans_max = spans_max_default) noexcept
      : bytes_max_(bytes_max), spans_max_(spans_max) {}
  explicit OwnMemory(MutableBytes memory) noexcept : memory_(memory.data()), bytes_max_(memory.size()) {}

  // The next `bytes`, at a multiple of 64; null while it only counts. False: they are too many.
  [[nodiscard]] bool take(std::uint64_t bytes, std::byte*& to) noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return used_; }
  [[nodiscard]] bool counts() const noexcept { return memory_ == nullptr; }
  [[nodiscard]] std::uint64_t bytes_max() const noexcept { return bytes_max_; }
  [[nodiscard]] std::uint64_t spans_max() const noexcept { return spans_max_; }

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_max_, spans_max_ = spans_max_default;
  std::uint64_t used_ = 0;
};

// The bitmap that tells which values of an array are null. Null: none is.
[[nodiscard]] Result<const std::uint8_t*> validity_of(const Layout& layout, std::uint32_t node,
                                                      const ArrowArray& array);

// The part of an array that is shown: values [first, first + length), counted from its buffers' beginning.
struct Slice {
  std::int64_t first;
  std::int64_t length;
};

// Values [first, first + count) of an array, `times` over.
struct Span {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t times = 1;
};
using Spans = std::vector<Span>;

class Gatherer {
 public:
  // Shows values that lie side by side (flatten.cc).
  class InPlace {
   public:
    [[nodiscard]] virtual Status show(std::uint32_t node, const ArrowArray& array, Slice slice) = 0;

   protected:
    ~InPlace() = default;
  };

  Gatherer(const Layout& layout, BatchView& view, OwnMemory& memory, InPlace& in_place) noexcept
      : layout_(layout), view_(view), memory_(memory), in_place_(in_place) {}

  // The values of a node, and of all beneath it. Spans count from the beginning of the buffers.
  [[nodiscard]] Status values(std::uint32_t node, const ArrowArray& array, Spans spans);

 private:
  [[nodiscard]] std::string path(std::uint32_t node) const { return path_of(layout_, node); }
  [[nodiscard]] std::string place(std::uint32_t node, std::int64_t row) const;
  [[nodiscard]] std::uint64_t length(std::uint32_t node) const noexcept;
  [[nodiscard]] tl::unexpected<Failure> fail_large(std::uint32_t node) const;
  [[nodiscard]] Status add(std::uint32_t node, Spans& to, Span span) const;
  [[nodiscard]] Status count_from_buffers(std::uint32_t node, const ArrowArray* array, Spans& spans) const;
  [[nodiscard]] Status values_of_runs(std::uint32_t node, const ArrowArray& array, std::uint8_t end_bytes,
                                      Spans& spans) const;
  [[nodiscard]] Status child(std::uint32_t node, const ArrowArray* array, Spans spans);
  [[nodiscard]] Status check_array(std::uint32_t node, const ArrowArray& array) const;
  [[nodiscard]] Status content(std::uint32_t node, const ArrowArray& array, Spans spans);
  [[nodiscard]] Result<std::byte*> take(std::uint32_t buffer, std::uint64_t count, std::uint64_t value_bytes);
  [[nodiscard]] Status validity(std::uint32_t node, const ArrowArray& array, const Spans& spans);
  [[nodiscard]] Status bits(std::uint32_t node, const ArrowArray& array, const Spans& spans);
  [[nodiscard]] Status fixed(std::uint32_t buffer, std::uint64_t value_bytes, const void* from, const Spans& spans);
  template <class Offset>
  [[nodiscard]] Status variable(std::uint32_t node, const ArrowArray& array, const Spans& spans);
  template <class Offset>
  [[nodiscard]] Status list_views(std::uint32_t node, const ArrowArray& array, const Spans& spans);
  [[nodiscard]] Status byte_views(std::uint32_t node, const ArrowArray& array, const Spans& spans);
  [[nodiscard]] Status dense_union(std::uint32_t node, const ArrowArray& array, const Spans& spans);

  const Layout& layout_;
  BatchView& view_;
  OwnMemory& memory_;
  InPlace& in_place_;
};

}  // namespace offpath::frame
