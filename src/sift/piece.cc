#include "sift/piece.h"

#include <algorithm>
#include <charconv>

namespace offpath::sift {

namespace {

constexpr std::uint32_t piece_magic = 0x5053464F;  // "OFSP"
constexpr std::uint16_t piece_version = 1;
constexpr std::size_t fixed_bytes = 56;
constexpr std::size_t crc_at = 12;

template <class T>
void put(std::vector<std::byte>& bytes, T value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  store(bytes.data() + at, value);
}

void put_text(std::vector<std::byte>& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint16_t>(text.size()));
  const Bytes raw = bytes_of(text);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class T>
T take(Bytes& bytes) {
  const T value = load<T>(bytes.data());
  bytes = bytes.subspan(sizeof value);
  return value;
}

Result<std::string> take_text(Bytes& bytes, std::size_t bytes_max, std::string_view what) {
  if (bytes.size() < 2) return fail(Error::protocol, "the header of a piece ends before its {}", what);
  const auto length = take<std::uint16_t>(bytes);
  if (length == 0 || length > bytes_max || length > bytes.size())
    return fail(Error::protocol, "the {} of a piece has {} bytes, 1 to {} are expected", what, length,
                std::min(bytes_max, bytes.size()));
  std::string text(text_of(bytes.first(length)));
  bytes = bytes.subspan(length);
  return text;
}

Status take_runs(Bytes bytes, std::uint32_t count, PieceHeader& header) {
  if (count > runs_max || bytes.size() != count * sizeof(StepRun))
    return fail(Error::protocol, "a piece has {} runs in {} bytes", count, bytes.size());
  std::uint64_t rows = 0;
  header.runs.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    StepRun& run = header.runs[i];
    run.step = take<std::int64_t>(bytes);
    run.rows = take<std::uint64_t>(bytes);
    if (run.rows == 0 || !checked_add(rows, run.rows, rows))
      return fail(Error::protocol, "run {} of a piece has {} rows", i, run.rows);
    if (i > 0 && run.step <= header.runs[i - 1].step)
      return fail(Error::protocol, "run {} of a piece has step {}, after step {}", i, run.step,
                  header.runs[i - 1].step);
  }
  return {};
}

}  // namespace

std::uint64_t PieceHeader::rows() const noexcept {
  std::uint64_t sum = 0;
  for (const StepRun& run : runs) sum += run.rows;
  return sum;
}

std::vector<std::byte> encode(const PieceHeader& header) {
  OFP_ASSERT(header.pool.size() <= pool_name_bytes_max && header.source.member.size() <= member_name_bytes_max);
  std::vector<std::byte> bytes;
  bytes.reserve(fixed_bytes + 4 + header.pool.size() + header.source.member.size() +
                header.runs.size() * sizeof(StepRun));
  put(bytes, piece_magic);
  put(bytes, piece_version);
  put(bytes, static_cast<std::uint16_t>(header.element.stage));
  put(bytes, header.element.index);
  put(bytes, header.crc32c);
  put(bytes, header.overhead_bytes);
  put(bytes, static_cast<std::uint32_t>(header.runs.size()));
  put(bytes, header.source.incarnation);
  put(bytes, header.sequence);
  put(bytes, header.answered_below);
  put(bytes, header.flush);
  put_text(bytes, header.pool);
  put_text(bytes, header.source.member);
  for (const StepRun& run : header.runs) {
    put(bytes, run.step);
    put(bytes, run.rows);
  }
  return bytes;
}

Result<PieceHeader> decode_piece_header(Bytes bytes) {
  if (bytes.size() < fixed_bytes)
    return fail(Error::protocol, "the header of a piece has {} bytes, at least {} are expected", bytes.size(),
                fixed_bytes);
  if (const auto found = take<std::uint32_t>(bytes); found != piece_magic)
    return fail(Error::protocol, "a piece begins with {:#x}, expected {:#x}", found, piece_magic);
  if (const auto found = take<std::uint16_t>(bytes); found != piece_version)
    return fail(Error::version, "a piece has version {}, expected {}", found, piece_version);
  PieceHeader header;
  header.element.stage = take<std::uint16_t>(bytes);
  header.element.index = take<std::uint32_t>(bytes);
  header.crc32c = take<std::uint32_t>(bytes);
  header.overhead_bytes = take<std::uint32_t>(bytes);
  const auto runs = take<std::uint32_t>(bytes);
  header.source.incarnation = take<std::uint64_t>(bytes);
  header.sequence = take<std::uint64_t>(bytes);
  header.answered_below = take<std::uint64_t>(bytes);
  header.flush = take<std::uint64_t>(bytes);
  OFP_ASSIGN(header.pool, take_text(bytes, pool_name_bytes_max, "pool"));
  OFP_ASSIGN(header.source.member, take_text(bytes, member_name_bytes_max, "source"));
  if (header.sequence == 0 || header.answered_below == 0 || header.answered_below > header.sequence) {
    return fail(Error::protocol, "a piece has sequence {}, and all below {} are answered: the first is 1",
                header.sequence, header.answered_below);
  }
  if ((header.flush != 0) != (runs == 0))
    return fail(Error::protocol, "a piece has {} runs and flush {}: one or the other is expected", runs, header.flush);
  OFP_TRY(take_runs(bytes, runs, header));
  return header;
}

std::uint32_t seal(const PieceHeader& header, std::uint32_t crc32c_of_identifiers) {
  std::vector<std::byte> bytes = encode(header);
  store(bytes.data() + crc_at, std::uint32_t{0});
  return crc32c(bytes, crc32c_of_identifiers);
}

Result<std::int64_t> step_of(std::string_view row_key) {
  const std::size_t before = row_key.find_last_not_of("0123456789");
  const std::string_view digits = row_key.substr(before == std::string_view::npos ? 0 : before + 1);
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (digits.empty())
    return fail(Error::invalid, "row key '{}' does not end in the number of a time step", row_key.substr(0, 200));
  if (error != std::errc{})
    return fail(Error::invalid, "row key '{}' ends in a time step beyond {}", row_key.substr(0, 200), INT64_MAX);
  return step;
}

bool TakenSequences::has(std::uint64_t sequence) const noexcept {
  if (sequence <= upto_) return true;
  auto after = later_.upper_bound(sequence);
  return after != later_.begin() && std::prev(after)->second >= sequence;
}

bool TakenSequences::can_take(std::uint64_t sequence) const noexcept {
  return later_.size() < gaps_max || sequence == upto_ + 1;
}

void TakenSequences::take(std::uint64_t first, std::uint64_t last) {
  if (first <= upto_ + 1) return take_below(std::max(last, upto_) + 1);
  auto after = later_.upper_bound(first);
  if (after != later_.begin() && std::prev(after)->second + 1 >= first) --after;
  while (after != later_.end() && after->first <= last + 1) {
    first = std::min(first, after->first);
    last = std::max(last, after->second);
    after = later_.erase(after);
  }
  later_.emplace_hint(after, first, last);
}

void TakenSequences::take(const TakenSequences& other) {
  take_below(other.upto_ + 1);
  for (const auto& [first, last] : other.later_) take(first, last);
}

void TakenSequences::take_below(std::uint64_t sequence) {
  if (sequence <= upto_ + 1) return;
  upto_ = sequence - 1;
  while (!later_.empty() && later_.begin()->first <= upto_ + 1) {
    upto_ = std::max(upto_, later_.begin()->second);
    later_.erase(later_.begin());
  }
}

}  // namespace offpath::sift
