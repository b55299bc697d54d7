// Any bytes as the end of an object's file: refused, or a record that can be encoded again. Also with a corrected
// checksum, so that the code behind that check is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pool/table/object_record.h"

using namespace offpath;

namespace {

void check(Bytes last, std::uint64_t file_bytes) {
  const auto record = pool::decode_end(last, file_bytes);
  if (!record) {
    OFP_ASSERT(record.error().code == Error::protocol && !record.error().message.empty());
    return;
  }
  OFP_ASSERT(record->bytes < file_bytes);
  const auto end = pool::encode_end(*record);
  OFP_ASSERT(record->bytes + end.size() == file_bytes && pool::decode_end(end, file_bytes).value() == *record);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> file(size);
  std::copy_n(reinterpret_cast<const std::byte*>(data), size, file.begin());
  check(file, file.size());
  if (size < pool::object_tail_bytes) return 0;
  std::byte* const tail = file.data() + size - pool::object_tail_bytes;
  const std::uint64_t body = load<std::uint32_t>(tail) % (size - pool::object_tail_bytes + 1);
  // the number of the file's bytes before this end
  const std::uint64_t object = load<std::uint64_t>(tail + 8) % (1ull << 40);
  store(tail, static_cast<std::uint32_t>(body));
  store(tail + 4, crc32c(Bytes(tail - body, body)));
  store(tail + 8, object + size);
  store(tail + 16, 0x0A314A424F50464Full);  // "OFPOBJ1\n"
  check(Bytes(file).last(std::min<std::size_t>(size, pool::object_end_bytes_max)), object + size);
  return 0;
}
