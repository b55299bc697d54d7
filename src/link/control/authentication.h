// Proof that both ends know one key, without sending it: HMAC-SHA256 over fresh random numbers of both sides and over
// the messages of both sides (RFC 2104; challenge and response as in RFC 2195, but mutual).
//
// The label in each proof names its sender, so that a reflected proof proves nothing. `binding` ties the proof to its
// TLS session (RFC 5705), so that it cannot be relayed to another session; empty without TLS.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"
#include "wire/control.h"

namespace offpath::link {

struct Crypto;

// Opens a regular file that only its owner may use. `what` names it in errors.
[[nodiscard]] Result<Fd> open_key_file(const std::string& path, std::string_view what);

class SharedKey {
 public:
  static constexpr std::size_t bytes_min = 16;
  static constexpr std::size_t bytes_max = 4096;

  // The whole file is the key, except for one newline at its end. Refuses a file that others may read.
  [[nodiscard]] static Result<SharedKey> load(const std::string& path);
  [[nodiscard]] static Result<SharedKey> from_bytes(Bytes key);

  SharedKey(SharedKey&&) noexcept = default;
  SharedKey& operator=(SharedKey&&) noexcept = default;
  ~SharedKey();

  enum class Side { host, agent };
  [[nodiscard]] Result<wire::Proof> prove(Side side, const wire::Nonce& host_nonce, const wire::Nonce& agent_nonce,
                                          Bytes binding, Bytes said) const;

 private:
  SharedKey() = default;
  std::vector<std::byte> key_;
  const Crypto* crypto_ = nullptr;
};

void fill_random(MutableBytes to);  // from the kernel
[[nodiscard]] wire::Nonce random_nonce();
[[nodiscard]] std::uint64_t random_number();

}  // namespace offpath::link
