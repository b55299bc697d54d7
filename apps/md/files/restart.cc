#include "md/files/restart.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>

#include "md/files/bad_input.h"

namespace md {
namespace {

//   offset  bytes
//   0       8      "OFPMDRST"
//   8       8      version
//   16      sizeof RestartHeader
//   ...     for each rank: 8 bytes number of atoms, then so many RestartAtom
//   end-8   8      FNV-1a of everything before
constexpr std::array<char, 8> magic{'O', 'F', 'P', 'M', 'D', 'R', 'S', 'T'};
constexpr std::uint64_t version = 3;
static_assert(sizeof(RestartAtom) == 80 && sizeof(RestartHeader) == 176);

template <class T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  const int file = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) throw BadInput(beside + ": cannot be written: " + std::strerror(errno));
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t written = ::write(file, text.data() + at, text.size() - at);
    if (written <= 0) break;
    at += static_cast<std::size_t>(written);
  }
  const bool kept = at == text.size() && ::fsync(file) == 0;
  const int error = errno;
  if (::close(file) != 0 || !kept || std::rename(beside.c_str(), path.c_str()) != 0) {
    throw BrokenRun(path + ": cannot be written: " + std::strerror(kept ? errno : error));
  }
}

class Reader {
 public:
  Reader(const std::string& path, std::span<const char> bytes) : path_(path), bytes_(bytes) {}
  template <class T>
  T take() {
    if (bytes_.size() < sizeof(T)) throw BadInput(path_ + ": the file is cut short");
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  [[nodiscard]] std::size_t left() const { return bytes_.size(); }

 private:
  const std::string& path_;
  std::span<const char> bytes_;
};

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte byte : bytes) sum = (sum ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  return sum;
}

void write_restart(const std::string& path, const RestartHeader& header, const std::vector<RestartAtom>& own,
                   Ranks& ranks) {
  const std::vector<std::vector<std::byte>> parts = ranks.gather(std::as_bytes(std::span(own)));
  if (ranks.rank() != 0) return;
  std::string text(magic.data(), magic.size());
  append(text, version);
  append(text, header);
  for (const std::vector<std::byte>& part : parts) {
    append(text, static_cast<std::uint64_t>(part.size() / sizeof(RestartAtom)));
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  append(text, checksum(std::as_bytes(std::span(text))));
  write_whole(path, text);
}

Restart read_restart(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open()) throw BadInput(path + ": cannot be read");
  if (text.size() < magic.size() || std::memcmp(text.data(), magic.data(), magic.size()) != 0) {
    throw BadInput(path + ": not a restart file of offpath-md");
  }
  const std::size_t summed = text.size() - sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  if (text.size() < 16 + sizeof sum) throw BadInput(path + ": the file is cut short");
  std::memcpy(&sum, text.data() + summed, sizeof sum);
  if (sum != checksum(std::as_bytes(std::span(text).first(summed))))
    throw BadInput(path + ": the file is cut short or damaged: its checksum is wrong");
  Reader in(path, std::span(text).first(summed).subspan(magic.size()));
  if (const auto found = in.take<std::uint64_t>(); found != version) {
    throw BadInput(path + ": version " + std::to_string(found) + " of restart files; this program reads version " +
                   std::to_string(version));
  }
  Restart restart;
  restart.header = in.take<RestartHeader>();
  for (int r = 0; r < restart.header.ranks; ++r) {
    const auto count = in.take<std::uint64_t>();
    if (count > in.left() / sizeof(RestartAtom)) throw BadInput(path + ": the file is cut short");
    std::vector<RestartAtom>& part = restart.parts.emplace_back();
    for (std::uint64_t n = 0; n < count; ++n) part.push_back(in.take<RestartAtom>());
  }
  return restart;
}

}  // namespace md
