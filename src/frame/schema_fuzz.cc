// decode and read_schema_metadata take any bytes; accepted ones are a schema that survives every conversion.
#include <cstdlib>
#include <vector>

#include "frame/c_arrays.h"
#include "frame/schema.h"
#include "frame/template.h"

namespace {

using namespace offpath;
using namespace offpath::frame;

void expect(bool holds) {
  if (!holds) std::abort();
}

void go_round(const Schema& schema) {
  const auto decoded = decode(encode(schema));
  expect(decoded && *decoded == schema);
  const auto message = schema_message(schema);
  expect(message.has_value() && message->size() % 8 == 0);
  const auto read = read_schema_metadata(Bytes(*message).subspan(message_prefix_bytes));
  // Parameters a type does not have are not in the message, but the fields are.
  expect(read.has_value() && read->fields.size() == schema.fields.size());
  ArrowSchema exported{};
  export_schema(schema, &exported);
  (void)import_schema(exported);  // C strings end at a zero byte, so names may differ
  exported.release(&exported);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint64_t> aligned((size + 7) / 8);
  if (size > 0) std::memcpy(aligned.data(), data, size);
  std::vector<std::byte> bytes(reinterpret_cast<std::byte*>(aligned.data()),
                               reinterpret_cast<std::byte*>(aligned.data()) + size);
  if (const auto schema = decode(bytes)) {
    expect(encode(*schema) == bytes);
    go_round(*schema);
  }
  if (size >= 12) {  // the same with the right beginning, which is hard to guess
    store(bytes.data(), std::uint64_t{0x000000015350464F});
    store(bytes.data() + 8, static_cast<std::uint32_t>(size));
    if (const auto schema = decode(bytes)) go_round(*schema);
  }
  if (const auto schema = read_schema_metadata({reinterpret_cast<const std::byte*>(aligned.data()), size}))
    go_round(*schema);
  return 0;
}
