#include "sift/split/partition.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace offpath::sift {

namespace {

// SplitBits::part_of for identifiers of this width, without a branch.
template <class Id>
struct PartOf {
  explicit PartOf(SplitBits bits) noexcept
      : shift(std::min<std::uint32_t>(bits.shift, sizeof(Id) * 8 - 1)),
        mask(bits.shift < sizeof(Id) * 8 ? static_cast<Id>(bits.parts() - 1) : Id{0}) {}
  std::uint32_t operator()(const std::byte* id) const noexcept {
    return static_cast<std::uint32_t>((load<Id>(id) >> shift) & mask);
  }

  std::uint32_t shift;
  Id mask;
};

template <class Id>
void part_numbers(const std::byte* values, std::uint32_t count, SplitBits bits, std::uint16_t* parts) noexcept {
  const PartOf<Id> part_of(bits);
  for (std::uint32_t i = 0; i < count; ++i) parts[i] = static_cast<std::uint16_t>(part_of(values + i * sizeof(Id)));
}

void part_numbers(const Identifiers& ids, std::uint64_t begin, std::uint32_t count, SplitBits bits,
                  std::uint16_t* parts) noexcept {
  const std::byte* const values = ids.values + begin * ids.value_bytes;
  if (ids.value_bytes == 8)
    part_numbers<std::uint64_t>(values, count, bits, parts);
  else
    part_numbers<std::uint32_t>(values, count, bits, parts);
}

// Rows of a block: enough for runs of this many rows, or as many as keep a column of the block in a cache of the core,
// because the ends of runs cost most. Ends of streamed runs cost more, because their lines are written in parts.
constexpr std::uint32_t block_rows_max = 32768;

std::uint32_t block_rows_of(SplitBits bits, bool streamed) noexcept {
  constexpr std::uint32_t block_rows_min = 4096, run_rows_cached = 128, run_rows_streamed = 512;
  const std::uint32_t run_rows = streamed ? run_rows_streamed : run_rows_cached;
  return std::clamp(bits.parts() * run_rows, block_rows_min, block_rows_max);
}

constexpr std::uint32_t line_bytes = 64;

// Prefetches a column's values of the next block while this one is gathered, one line for each written line. More at
// once would wait for each other.
class Ahead {
 public:
  Ahead(const std::byte* values, std::size_t bytes) noexcept : values_(values), bytes_(bytes) {}

  void fetch_line() noexcept {
    if (fetched_ >= bytes_) return;
    __builtin_prefetch(values_ + fetched_);
    fetched_ += line_bytes;
  }
  void fetch_first(std::size_t bytes) noexcept {
    while (fetched_ < std::min(bytes, bytes_)) fetch_line();
  }

 private:
  const std::byte* values_;
  std::size_t bytes_, fetched_ = 0;
};

template <class Value>
void gather_values(const std::byte* from, const std::uint16_t* order, std::uint32_t count, std::byte* to) noexcept {
  for (std::uint32_t i = 0; i < count; ++i)
    std::memcpy(to + i * sizeof(Value), from + order[i] * sizeof(Value), sizeof(Value));
}

template <class Value>
void gather_scalar(const std::byte* from, const std::uint16_t* order, std::uint32_t count, std::byte* to,
                   Ahead& ahead) noexcept {
  constexpr std::uint32_t line = line_bytes / sizeof(Value);
  std::uint32_t i = 0;
  for (; i + line <= count; i += line) {
    ahead.fetch_line();
    gather_values<Value>(from, order + i, line, to + i * sizeof(Value));
  }
  gather_values<Value>(from, order + i, count - i, to + i * sizeof(Value));
}

void gather_bytes(const std::byte* from, std::uint32_t value_bytes, const std::uint16_t* order, std::uint32_t count,
                  std::byte* to) noexcept {
  for (std::uint32_t i = 0; i < count; ++i)
    std::memcpy(to + std::size_t{i} * value_bytes, from + std::size_t{order[i]} * value_bytes, value_bytes);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void gather4_avx2(const std::byte* from, const std::uint16_t* order,
                                                  std::uint32_t count, std::byte* to, Ahead& ahead) noexcept {
  std::uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    if (i % 16 == 0) ahead.fetch_line();
    const __m256i rows = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(order + i)));
    // With a mask, because GCC's header warns about an uninitialised variable in the form without one.
    const __m256i values = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(from), rows,
                                                       _mm256_set1_epi32(-1), 4);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 4), values);
  }
  gather_values<std::uint32_t>(from, order + i, count - i, to + i * 4);
}

#define OFP_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

// Only lanes of `mask` are read and written.
OFP_AVX512 inline void gather4_masked(const std::byte* from, const std::uint16_t* order, __mmask16 mask,
                                      std::byte* to) noexcept {
  const __m512i rows = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, order));
  _mm512_mask_storeu_epi32(to, mask, _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), mask, rows, from, 4));
}

OFP_AVX512 inline void gather8_masked(const std::byte* from, const std::uint16_t* order, __mmask8 mask,
                                      std::byte* to) noexcept {
  const __m256i rows = _mm256_maskz_cvtepu16_epi32(mask, _mm_maskz_loadu_epi16(mask, order));
  _mm512_mask_storeu_epi64(to, mask, _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), mask, rows, from, 8));
}

// Values before the first cache line that is written in full.
inline std::uint32_t head_of(const std::byte* to, std::uint32_t value_bytes, std::uint32_t count) noexcept {
  const auto before = static_cast<std::uint32_t>(-reinterpret_cast<std::uintptr_t>(to) % line_bytes);
  return std::min(count, before / value_bytes);
}

template <bool streamed>
OFP_AVX512 void gather4_avx512(const std::byte* from, const std::uint16_t* order, std::uint32_t count, std::byte* to,
                               Ahead& ahead) noexcept {
  std::uint32_t i = 0;
  if (streamed) {
    i = head_of(to, 4, count);
    gather4_masked(from, order, static_cast<__mmask16>((1u << i) - 1), to);
  }
  for (; i + 16 <= count; i += 16) {
    ahead.fetch_line();
    const __m512i rows =
        _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(order + i)));
    const __m512i values = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xFFFF, rows, from, 4);
    if (streamed)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * 4), values);
    else
      _mm512_storeu_si512(to + i * 4, values);
  }
  gather4_masked(from, order + i, static_cast<__mmask16>((1u << (count - i)) - 1), to + i * 4);
}

template <bool streamed>
OFP_AVX512 void gather8_avx512(const std::byte* from, const std::uint16_t* order, std::uint32_t count, std::byte* to,
                               Ahead& ahead) noexcept {
  std::uint32_t i = 0;
  if (streamed) {
    i = head_of(to, 8, count);
    gather8_masked(from, order, static_cast<__mmask8>((1u << i) - 1), to);
  }
  for (; i + 8 <= count; i += 8) {
    ahead.fetch_line();
    const __m256i rows =
        _mm256_maskz_cvtepu16_epi32(0xFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(order + i)));
    const __m512i values = _mm512_mask_i32gather_epi64(_mm512_setzero_si512(), 0xFF, rows, from, 8);
    if (streamed)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * 8), values);
    else
      _mm512_storeu_si512(to + i * 8, values);
  }
  gather8_masked(from, order + i, static_cast<__mmask8>((1u << (count - i)) - 1), to + i * 8);
}

#endif

using GatherRun = void (*)(const std::byte* from, const std::uint16_t* order, std::uint32_t count, std::byte* to,
                           Ahead& ahead) noexcept;

// `streamed`: only if all targets are at multiples of value_bytes.
GatherRun gather_of(std::uint32_t value_bytes, [[maybe_unused]] Gather gather,
                    [[maybe_unused]] bool streamed) noexcept {
#if defined(__x86_64__)
  if (gather == Gather::avx512 && value_bytes == 4) return streamed ? gather4_avx512<true> : gather4_avx512<false>;
  if (gather == Gather::avx512 && value_bytes == 8) return streamed ? gather8_avx512<true> : gather8_avx512<false>;
  if (gather == Gather::avx2 && value_bytes == 4) return gather4_avx2;
#endif
  switch (value_bytes) {
    case 1:
      return gather_scalar<std::uint8_t>;
    case 2:
      return gather_scalar<std::uint16_t>;
    case 4:
      return gather_scalar<std::uint32_t>;
    case 8:
      return gather_scalar<std::uint64_t>;
    case 16:
      return gather_scalar<std::array<std::uint64_t, 2>>;
    default:
      return nullptr;
  }
}

template <class Id>
void count_parts_of(const Identifiers& ids, SplitBits bits, std::span<std::uint64_t> counts) noexcept {
  // Four tables in turn: otherwise neighbouring rows of one part would wait for each other's store.
  constexpr std::uint32_t tables = 4;
  constexpr std::uint64_t stretch_rows = std::uint64_t{1} << 32;  // before its 32 bits overflow
  std::array<std::uint32_t, tables << split_bits_max> counted;
  const std::uint32_t width = bits.parts();
  const PartOf<Id> part_of(bits);
  for (std::uint64_t row = 0; row < ids.rows;) {
    counted.fill(0);
    const std::uint64_t last = std::min(ids.rows, row + stretch_rows);
    for (; row + tables <= last; row += tables)
      for (std::uint32_t table = 0; table < tables; ++table)
        ++counted[table * width + part_of(ids.values + (row + table) * sizeof(Id))];
    for (; row < last; ++row) ++counted[part_of(ids.values + row * sizeof(Id))];
    for (std::uint32_t at = 0; at < tables * width; ++at) counts[at % width] += counted[at];
  }
}

}  // namespace

Gather best_gather() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return Gather::avx512;
  if (__builtin_cpu_supports("avx2")) return Gather::avx2;
#endif
  return Gather::scalar;
}

void count_parts(const Identifiers& ids, SplitBits bits, std::span<std::uint64_t> counts) noexcept {
  if (ids.value_bytes == 8)
    count_parts_of<std::uint64_t>(ids, bits, counts);
  else
    count_parts_of<std::uint32_t>(ids, bits, counts);
}

Partition::Partition(SplitBits bits, Gather gather)
    : bits_(bits),
      gather_(gather),
      part_of_row_(block_rows_of(bits, true)),
      order_(part_of_row_.size()),
      begin_(bits.parts() + 1),
      at_(bits.parts()) {}

void Partition::split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets) {
  std::uint64_t row_bytes = 0;
  for (const Column& column : columns) row_bytes += column.value_bytes;
  constexpr std::uint64_t large_bytes = 4 << 20;  // the next reader finds less in the cache
  SplitWay way{.streamed = false, .fetches_ahead = true};
  std::uint64_t begin = 0;
  if (ids.rows * row_bytes >= large_bytes) {
    std::atomic<const SplitWay*>& fastest = fastest_way(bits_.bits);
    if (fastest.load(std::memory_order_relaxed) == nullptr)
      begin = try_ways({ids, columns, targets}, std::max<std::uint64_t>(1, large_bytes / row_bytes), fastest);
    const SplitWay* const found = fastest.load(std::memory_order_relaxed);
    way = found != nullptr ? *found : split_ways[0];
  }
  split_rows({ids, columns, targets}, begin, ids.rows, way);
}

void Partition::split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets,
                      SplitWay way) {
  split_rows({ids, columns, targets}, 0, ids.rows, way);
}

std::atomic<const SplitWay*>& Partition::fastest_way(std::uint32_t bits) noexcept {
  static std::array<std::atomic<const SplitWay*>, split_bits_max + 1> fastest{};
  return fastest[bits];
}

std::uint64_t Partition::try_ways(const Rows& rows, std::uint64_t stretch_rows, std::atomic<const SplitWay*>& fastest) {
  constexpr std::size_t turns = 4 * split_ways.size();  // the best time of each way counts: the core may be preempted
                                                        // in any attempt
  if (rows.ids.rows < turns * stretch_rows) return 0;
  std::array<TimeNs, split_ways.size()> best;
  best.fill(never);
  std::uint64_t begin = 0;
  for (std::size_t turn = 0; turn < turns; ++turn, begin += stretch_rows) {
    const std::size_t way = turn % split_ways.size();
    const TimeNs began = monotonic_ns();
    split_rows(rows, begin, begin + stretch_rows, split_ways[way]);
    best[way] = std::min(best[way], monotonic_ns() - began);
  }
  fastest.store(&split_ways[static_cast<std::size_t>(std::ranges::min_element(best) - best.begin())],
                std::memory_order_relaxed);
  return begin;
}

void Partition::split_rows(const Rows& rows, std::uint64_t first, std::uint64_t last, SplitWay way) {
  const std::uint32_t parts = bits_.parts(), block_rows = block_rows_of(bits_, way.streamed);
  std::vector<GatherRun> runs;
  for (std::size_t column = 0; column < rows.columns.size(); ++column) {
    const std::uint32_t value_bytes = rows.columns[column].value_bytes;
    const bool aligned = std::ranges::all_of(rows.targets.subspan(column * parts, parts), [&](const std::byte* to) {
      return reinterpret_cast<std::uintptr_t>(to) % value_bytes == 0;
    });
    runs.push_back(gather_of(value_bytes, gather_, way.streamed && aligned));
  }
  for (std::uint64_t row = first; row < last; row += block_rows) {
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(block_rows, last - row));
    const std::uint64_t next_count = way.fetches_ahead ? std::min<std::uint64_t>(block_rows, last - row - count) : 0;
    part_numbers(rows.ids, row, count, bits_, part_of_row_.data());
    std::fill(begin_.begin(), begin_.end(), 0);
    for (std::uint32_t i = 0; i < count; ++i) ++begin_[part_of_row_[i] + 1];
    for (std::uint32_t part = 0; part < parts; ++part) {
      begin_[part + 1] += begin_[part];
      at_[part] = begin_[part];
    }
    for (std::uint32_t i = 0; i < count; ++i) order_[at_[part_of_row_[i]]++] = static_cast<std::uint16_t>(i);

    for (std::size_t column = 0; column < rows.columns.size(); ++column) {
      const std::uint32_t value_bytes = rows.columns[column].value_bytes;
      const std::byte* const from = rows.columns[column].values + row * value_bytes;
      const GatherRun run = runs[column];
      std::byte** const to = rows.targets.data() + column * parts;
      Ahead ahead(from + std::size_t{count} * value_bytes, next_count * value_bytes);
      for (std::uint32_t part = 0; part < parts; ++part) {
        const std::uint32_t begin = begin_[part], run_rows = begin_[part + 1] - begin;
        if (run != nullptr)
          run(from, order_.data() + begin, run_rows, to[part], ahead);
        else
          gather_bytes(from, value_bytes, order_.data() + begin, run_rows, to[part]);
        ahead.fetch_first(std::size_t{begin + run_rows} * value_bytes);
        to[part] += std::size_t{run_rows} * value_bytes;
      }
    }
  }
#if defined(__x86_64__)
  _mm_sfence();  // streamed stores are not ordered otherwise, and other threads read them
#endif
}

}  // namespace offpath::sift
