#include "pool/directory/put_id.h"

#include <algorithm>

#include "wire/cursor.h"

namespace offpath::pool {

namespace {

const Version* find(const std::vector<Version>& over, std::uint64_t writer) noexcept {
  const auto at = std::ranges::find(over, writer, &Version::writer);
  return at != over.end() ? &*at : nullptr;
}

}  // namespace

bool PutId::knows(const Version& other) const noexcept {
  if (other.writer == writer) return other.counter <= counter;
  const Version* const known = find(over, other.writer);
  return known != nullptr && other.counter <= known->counter;
}

void PutId::learn(const PutId& other) {
  const auto add = [this](const Version& version) {
    if (version.counter == 0 || version.writer == writer) return;
    if (const auto at = std::ranges::find(over, version.writer, &Version::writer); at != over.end())
      at->counter = std::max(at->counter, version.counter);
    else
      over.push_back(version);
  };
  add(other.version());
  for (const Version& version : other.over) add(version);
  while (over.size() > puts_over_max) over.erase(std::ranges::min_element(over));
}

std::vector<std::byte> encode_over(const std::vector<Version>& over) {
  std::vector<std::byte> bytes;
  wire::Writer writer(bytes);
  for (const Version& version : over) {
    writer.put(version.counter);
    writer.put(version.writer);
  }
  return bytes;
}

Result<std::vector<Version>> decode_over(Bytes bytes) {
  if (bytes.size() % 16 != 0 || bytes.size() > put_over_bytes_max)
    return fail(Error::protocol, "the puts that one replaced have {} bytes: 16 for each of at most {}", bytes.size(),
                puts_over_max);
  std::vector<Version> over(bytes.size() / 16);
  wire::Reader reader(bytes);
  for (Version& version : over) {
    version.counter = reader.take<std::uint64_t>();
    version.writer = reader.take<std::uint64_t>();
    if (version.counter > put_counter_max)
      return fail(Error::protocol, "a put's counter is {}, at most {} is possible", version.counter, put_counter_max);
  }
  return over;
}

}  // namespace offpath::pool
