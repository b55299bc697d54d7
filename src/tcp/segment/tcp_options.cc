#include "tcp/segment/tcp_options.h"

#include "tcp/segment/big_endian.h"

namespace offpath::tcp {
namespace {

enum Kind : std::uint8_t {
  end = 0,
  nothing = 1,
  mss = 2,
  window_scale = 3,
  sack_permitted = 4,
  sack = 5,
  timestamps = 8,
  ecn_bytes_0 = 172,
  ecn_bytes_1 = 174
};

std::uint32_t load_be24(const std::byte* at) noexcept {
  return std::uint32_t{load_be16(at)} << 8 | static_cast<std::uint32_t>(at[2]);
}

// Of another length it has as many fields as fit (RFC 9768, 3.2.3).
EcnBytes read_ecn_bytes(Bytes body, bool reverse) noexcept {
  EcnBytes told;
  std::optional<std::uint32_t>* const fields[] = {reverse ? &told.capable_1 : &told.capable_0, &told.congested,
                                                  reverse ? &told.capable_0 : &told.capable_1};
  for (std::size_t i = 0; i < 3 && 3 * (i + 1) <= body.size(); ++i) *fields[i] = load_be24(body.data() + 3 * i);
  return told;
}

void read_option(std::uint8_t kind, Bytes body, TcpOptions& options) noexcept {
  const std::byte* at = body.data();
  if (kind == mss && body.size() == 2) options.mss = load_be16(at);
  // A larger scale counts as the largest one (RFC 7323, 2.3).
  if (kind == window_scale && body.size() == 1)
    options.window_scale = std::min(static_cast<std::uint8_t>(*at), window_scale_max);
  if (kind == sack_permitted && body.empty()) options.sack_permitted = true;
  if (kind == timestamps && body.size() == 8) options.timestamps = Timestamps{load_be32(at), load_be32(at + 4)};
  if (kind == ecn_bytes_0 || kind == ecn_bytes_1) options.ecn_bytes = read_ecn_bytes(body, kind == ecn_bytes_1);
  if (kind == sack && body.size() % 8 == 0 && body.size() <= 8 * sack_blocks_max) {
    options.sack_count = static_cast<std::uint8_t>(body.size() / 8);
    for (std::size_t i = 0; i < options.sack_count; ++i)
      options.sack[i] = {Sequence(load_be32(at + 8 * i)), Sequence(load_be32(at + 8 * i + 4))};
  }
}

class Writer {
 public:
  explicit Writer(std::byte* to) noexcept : to_(to) {}
  void byte(std::uint8_t value) noexcept { to_[size_++] = std::byte{value}; }
  void word(std::uint16_t value) noexcept { store_be16(to_ + size_, value), size_ += 2; }
  void number(std::uint32_t value) noexcept { store_be32(to_ + size_, value), size_ += 4; }
  void option(std::uint8_t kind, std::size_t bytes) noexcept { byte(kind), byte(static_cast<std::uint8_t>(bytes)); }
  void number_of_24(std::uint32_t value) noexcept {
    byte(static_cast<std::uint8_t>(value >> 16)), word(static_cast<std::uint16_t>(value));
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::byte* to_;
  std::size_t size_ = 0;
};

}  // namespace

TcpOptions read_tcp_options(Bytes bytes) noexcept {
  TcpOptions options;
  while (!bytes.empty()) {
    const auto kind = static_cast<std::uint8_t>(bytes[0]);
    if (kind == end) break;
    if (kind == nothing) {
      bytes = bytes.subspan(1);
      continue;
    }
    if (bytes.size() < 2) break;
    const auto length = static_cast<std::size_t>(bytes[1]);
    if (length < 2 || length > bytes.size()) break;
    read_option(kind, bytes.subspan(2, length - 2), options);
    bytes = bytes.subspan(length);
  }
  return options;
}

namespace {

void write_ecn_bytes(const EcnBytes& told, Writer& out) noexcept {
  const bool reverse = told.capable_1 && !told.capable_0;
  const std::optional<std::uint32_t> fields[] = {reverse ? told.capable_1 : told.capable_0, told.congested,
                                                 reverse ? told.capable_0 : told.capable_1};
  std::size_t count = 0;
  while (count < 3 && fields[count]) ++count;
  const std::size_t bytes = 2 + 3 * count;
  for (std::size_t padding = bytes; padding % 4 != 0; ++padding) out.byte(nothing);
  out.option(reverse ? ecn_bytes_1 : ecn_bytes_0, bytes);
  for (std::size_t i = 0; i < count; ++i) out.number_of_24(*fields[i] & EcnBytes::mask);
}

}  // namespace

// Each group begins at a multiple of four, as in other stacks, so that receivers can compare headers quickly.
std::size_t write_tcp_options(const TcpOptions& options, std::span<std::byte, tcp_options_bytes_max> to) noexcept {
  Writer out(to.data());
  if (options.mss) out.option(mss, 4), out.word(*options.mss);
  if (options.sack_permitted && options.timestamps) {
    out.option(sack_permitted, 2);
  } else if (options.sack_permitted) {
    out.byte(nothing), out.byte(nothing), out.option(sack_permitted, 2);
  }
  if (options.timestamps) {
    if (!options.sack_permitted) out.byte(nothing), out.byte(nothing);
    out.option(timestamps, 10), out.number(options.timestamps->value), out.number(options.timestamps->echo);
  }
  if (options.window_scale) out.byte(nothing), out.option(window_scale, 3), out.byte(*options.window_scale);
  if (options.ecn_bytes && out.size() + ecn_option_bytes(*options.ecn_bytes) <= to.size())
    write_ecn_bytes(*options.ecn_bytes, out);
  const std::size_t room = to.size() - out.size();
  const std::size_t blocks = std::min<std::size_t>(options.sack_count, room < 12 ? 0 : (room - 4) / 8);
  if (blocks > 0) {
    out.byte(nothing), out.byte(nothing), out.option(sack, 2 + 8 * blocks);
    for (std::size_t i = 0; i < blocks; ++i)
      out.number(options.sack[i].begin.value()), out.number(options.sack[i].end.value());
  }
  return out.size();
}

}  // namespace offpath::tcp
