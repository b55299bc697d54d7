#include "link/control/authentication.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "link/control/crypto.h"

namespace offpath::link {

void fill_random(MutableBytes to) {
  while (!to.empty()) {
    const ssize_t got = getrandom(to.data(), to.size(), 0);
    OFP_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) to = to.subspan(static_cast<std::size_t>(got));
  }
}

Result<Fd> open_key_file(const std::string& path, std::string_view what) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (!file || fstat(file.get(), &status) != 0) return fail_errno(errno, fmt::format("{} {}", what, path));
  if (!S_ISREG(status.st_mode)) return fail(Error::invalid, "{} {}: not a regular file", what, path);
  if ((status.st_mode & 077) != 0)
    return fail(Error::denied, "{} {}: its mode is {:03o}, others may use it; allowed is 600 or less (chmod 600 {})",
                what, path, status.st_mode & 0777, path);
  return file;
}

SharedKey::~SharedKey() {
  if (!key_.empty()) explicit_bzero(key_.data(), key_.size());
}

Result<SharedKey> SharedKey::load(const std::string& path) {
  OFP_TRY(crypto());  // first: its absence is not an error of the file
  OFP_ASSIGN(const Fd file, open_key_file(path, "key file"));
  std::vector<std::byte> bytes(bytes_max + 2);
  std::size_t length = 0;
  while (length < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + length, bytes.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("key file {}", path));
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length > 0 && bytes[length - 1] == std::byte{'\n'}) --length;
  auto key = from_bytes(Bytes(bytes).first(length));
  explicit_bzero(bytes.data(), bytes.size());
  if (!key) return fail(key.error().code, "key file {}: {}", path, key.error().message);
  return key;
}

Result<SharedKey> SharedKey::from_bytes(Bytes bytes) {
  if (bytes.size() < bytes_min || bytes.size() > bytes_max)
    return fail(Error::invalid, "the key has {} bytes, it needs from {} to {}", bytes.size(), bytes_min, bytes_max);
  OFP_ASSIGN(const Crypto* found, crypto());
  SharedKey key;
  key.crypto_ = found;
  key.key_.assign(bytes.begin(), bytes.end());
  return key;
}

Result<wire::Proof> SharedKey::prove(Side side, const wire::Nonce& host_nonce, const wire::Nonce& agent_nonce,
                                     Bytes binding, Bytes said) const {
  // Every field but the last has a fixed length or a length prefix, so different inputs never encode alike.
  std::vector<std::byte> input;
  const auto append = [&input](Bytes bytes) { input.insert(input.end(), bytes.begin(), bytes.end()); };
  append(bytes_of(side == Side::host ? "offpath 1 host " : "offpath 1 agent"));
  append(host_nonce);
  append(agent_nonce);
  const std::uint64_t binding_bytes = binding.size();
  append(std::as_bytes(std::span(&binding_bytes, 1)));
  append(binding);
  append(said);

  return crypto_->hmac_sha256(key_, input);
}

wire::Nonce random_nonce() {
  wire::Nonce nonce;
  fill_random(nonce);
  return nonce;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace offpath::link
