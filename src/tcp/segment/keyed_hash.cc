#include "tcp/segment/keyed_hash.h"

#include <bit>

namespace offpath::tcp {
namespace {

struct State {
  std::uint64_t a, b, c, d;

  explicit State(const HashKey& key) noexcept
      : a(key.first ^ 0x736f6d6570736575),
        b(key.second ^ 0x646f72616e646f6d),
        c(key.first ^ 0x6c7967656e657261),
        d(key.second ^ 0x7465646279746573) {}
  void round() noexcept {
    a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16) ^ c;
    a += d, d = std::rotl(d, 21) ^ a;
    c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
  }
  void word(std::uint64_t value) noexcept {
    d ^= value;
    round(), round();
    a ^= value;
  }
  std::uint64_t finish() noexcept {
    c ^= 0xff;
    round(), round(), round(), round();
    return a ^ b ^ c ^ d;
  }
};

}  // namespace

std::uint64_t keyed_hash(const HashKey& key, Bytes bytes) noexcept {
  State state(key);
  std::uint64_t last = std::uint64_t{bytes.size()} << 56;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) state.word(load<std::uint64_t>(bytes.data()));
  for (std::size_t i = 0; i < bytes.size(); ++i) last |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  state.word(last);
  return state.finish();
}

std::uint64_t keyed_hash(const HashKey& key, const FlowKey& flow, std::uint64_t number) noexcept {
  State state(key);
  state.word(std::uint64_t{flow.local.address.value} << 32 | flow.remote.address.value);
  state.word(std::uint64_t{flow.local.port} << 16 | flow.remote.port);
  state.word(number);
  state.word(std::uint64_t{24} << 56);  // the bytes so far, as in the hash of bytes
  return state.finish();
}

}  // namespace offpath::tcp
