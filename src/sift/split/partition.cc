#include "sift/split/partition.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace offpath::sift {

namespace {

template <class Id>
void part_numbers(const std::byte* values, std::uint32_t count, SplitBits bits, std::uint16_t* parts) noexcept {
  const std::uint32_t mask = bits.parts() - 1;
  const std::uint32_t shift = std::min<std::uint32_t>(bits.shift, sizeof(Id) * 8 - 1);
  const Id all = bits.shift < sizeof(Id) * 8 ? static_cast<Id>(mask) : Id{0};
  for (std::uint32_t i = 0; i < count; ++i) {
    const Id id = load<Id>(values + i * sizeof(Id));
    parts[i] = static_cast<std::uint16_t>((id >> shift) & all);
  }
}

void part_numbers(const Identifiers& ids, std::uint64_t begin, std::uint32_t count, SplitBits bits,
                  std::uint16_t* parts) noexcept {
  const std::byte* const values = ids.values + begin * ids.value_bytes;
  if (ids.value_bytes == 8)
    part_numbers<std::uint64_t>(values, count, bits, parts);
  else
    part_numbers<std::uint32_t>(values, count, bits, parts);
}

// Rows of a block: enough for runs of 512 rows, or as many as fit while a column of the block stays in a cache of the
// core, because the ends of runs cost most.
constexpr std::uint32_t block_rows_min = 4096, block_rows_max = 32768;

std::uint32_t block_rows_of(SplitBits bits) noexcept {
  return std::clamp<std::uint32_t>(bits.parts() * 512, block_rows_min, block_rows_max);
}

// A split of at least this size bypasses the caches; the next reader finds smaller ones in the cache.
constexpr std::uint64_t streamed_bytes_min = 4 << 20;

template <class Value>
void gather_scalar(const std::byte* from, const std::uint16_t* order, std::uint32_t count, std::byte* to) noexcept {
  for (std::uint32_t i = 0; i < count; ++i)
    std::memcpy(to + i * sizeof(Value), from + order[i] * sizeof(Value), sizeof(Value));
}

void gather_bytes(const std::byte* from, std::uint32_t value_bytes, const std::uint16_t* order, std::uint32_t count,
                  std::byte* to) noexcept {
  for (std::uint32_t i = 0; i < count; ++i)
    std::memcpy(to + std::size_t{i} * value_bytes, from + std::size_t{order[i]} * value_bytes, value_bytes);
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) void gather4_avx2(const std::byte* from, const std::uint16_t* order,
                                                  std::uint32_t count, std::byte* to) noexcept {
  std::uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i rows = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(order + i)));
    // With a mask, because GCC's header warns about an uninitialised variable in the form without one.
    const __m256i values = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), reinterpret_cast<const int*>(from), rows,
                                                       _mm256_set1_epi32(-1), 4);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 4), values);
  }
  gather_scalar<std::uint32_t>(from, order + i, count - i, to + i * 4);
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
  const auto before = static_cast<std::uint32_t>(-reinterpret_cast<std::uintptr_t>(to) % 64);
  return std::min(count, before / value_bytes);
}

template <bool streamed>
OFP_AVX512 void gather4_avx512(const std::byte* from, const std::uint16_t* order, std::uint32_t count,
                               std::byte* to) noexcept {
  std::uint32_t i = 0;
  if (streamed) {
    i = head_of(to, 4, count);
    gather4_masked(from, order, static_cast<__mmask16>((1u << i) - 1), to);
  }
  for (; i + 16 <= count; i += 16) {
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
OFP_AVX512 void gather8_avx512(const std::byte* from, const std::uint16_t* order, std::uint32_t count,
                               std::byte* to) noexcept {
  std::uint32_t i = 0;
  if (streamed) {
    i = head_of(to, 8, count);
    gather8_masked(from, order, static_cast<__mmask8>((1u << i) - 1), to);
  }
  for (; i + 8 <= count; i += 8) {
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

using GatherRun = void (*)(const std::byte* from, const std::uint16_t* order, std::uint32_t count,
                           std::byte* to) noexcept;

// `aligned`: all targets are at multiples of value_bytes.
GatherRun gather_of(std::uint32_t value_bytes, [[maybe_unused]] Gather gather, [[maybe_unused]] bool streamed,
                    [[maybe_unused]] bool aligned) noexcept {
#if defined(__x86_64__)
  if (gather == Gather::avx512 && value_bytes == 4)
    return streamed && aligned ? gather4_avx512<true> : gather4_avx512<false>;
  if (gather == Gather::avx512 && value_bytes == 8)
    return streamed && aligned ? gather8_avx512<true> : gather8_avx512<false>;
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
  // Four tables in turn: otherwise neighbouring rows of one part would wait for each other's store.
  constexpr std::uint32_t tables = 4, rows_max = 4096;
  std::array<std::uint16_t, rows_max> parts;
  std::array<std::uint32_t, tables << split_bits_max> counted{};
  const std::uint32_t width = bits.parts();
  for (std::uint64_t begin = 0; begin < ids.rows; begin += rows_max) {
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(rows_max, ids.rows - begin));
    part_numbers(ids, begin, count, bits, parts.data());
    std::uint32_t i = 0;
    for (; i + tables <= count; i += tables)
      for (std::uint32_t table = 0; table < tables; ++table) ++counted[table * width + parts[i + table]];
    for (; i < count; ++i) ++counted[parts[i]];
    if ((begin / rows_max) % 65536 == 65535 || begin + rows_max >= ids.rows) {  // before 32 bits overflow
      for (std::uint32_t at = 0; at < tables * width; ++at) counts[at % width] += counted[at];
      counted = {};
    }
  }
}

Partition::Partition(SplitBits bits, Gather gather)
    : bits_(bits),
      gather_(gather),
      block_rows_(block_rows_of(bits)),
      part_of_row_(block_rows_),
      order_(block_rows_),
      begin_(bits.parts() + 1),
      at_(bits.parts()) {}

void Partition::split(const Identifiers& ids, std::span<const Column> columns, std::span<std::byte*> targets) {
  const std::uint32_t parts = bits_.parts();
  std::uint64_t bytes = 0;
  for (const Column& column : columns) bytes += ids.rows * column.value_bytes;
  std::vector<GatherRun> runs;
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const std::uint32_t value_bytes = columns[column].value_bytes;
    const bool aligned = std::ranges::all_of(targets.subspan(column * parts, parts), [&](const std::byte* to) {
      return reinterpret_cast<std::uintptr_t>(to) % value_bytes == 0;
    });
    runs.push_back(gather_of(value_bytes, gather_, bytes >= streamed_bytes_min, aligned));
  }
  for (std::uint64_t row = 0; row < ids.rows; row += block_rows_) {
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(block_rows_, ids.rows - row));
    part_numbers(ids, row, count, bits_, part_of_row_.data());
    std::fill(begin_.begin(), begin_.end(), 0);
    for (std::uint32_t i = 0; i < count; ++i) ++begin_[part_of_row_[i] + 1];
    for (std::uint32_t part = 0; part < parts; ++part) {
      begin_[part + 1] += begin_[part];
      at_[part] = begin_[part];
    }
    for (std::uint32_t i = 0; i < count; ++i) order_[at_[part_of_row_[i]]++] = static_cast<std::uint16_t>(i);

    for (std::size_t column = 0; column < columns.size(); ++column) {
      const std::uint32_t value_bytes = columns[column].value_bytes;
      const std::byte* const from = columns[column].values + row * value_bytes;
      const GatherRun run = runs[column];
      std::byte** const to = targets.data() + column * parts;
      for (std::uint32_t part = 0; part < parts; ++part) {
        const std::uint32_t begin = begin_[part], rows = begin_[part + 1] - begin;
        if (run != nullptr)
          run(from, order_.data() + begin, rows, to[part]);
        else
          gather_bytes(from, value_bytes, order_.data() + begin, rows, to[part]);
        to[part] += std::size_t{rows} * value_bytes;
      }
    }
  }
#if defined(__x86_64__)
  _mm_sfence();  // streamed stores are not ordered otherwise, and other threads read them
#endif
}

}  // namespace offpath::sift
