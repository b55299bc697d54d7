// parse_frame, read_schema and read_batch take any bytes. Accepted frames may be read in full.
#include <fuzzer/FuzzedDataProvider.h>

#include <random>

#include "frame/c_arrays.h"
#include "frame/parse.h"
#include "testing/frame/random_batches.h"
#include "wire/messages/stream_messages.h"

namespace {

using namespace offpath;
using namespace offpath::frame;

std::uint64_t sum_of(Bytes bytes) {
  std::uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<std::uint64_t>(byte);
  return sum;
}

// Reads everything an accepted frame points at.
void read_all(Bytes frame) {
  const auto view = parse_frame(frame);
  if (!view) return;
  volatile std::uint64_t sum = 0;
  std::uint64_t position = 0;
  for (const MessageRange& message : view->messages) {
    const MessagePiece piece = fit_message(frame, message, position, 64);
    if (message.body_bytes > 0 && !message.compressed && (position + piece.bytes() - piece.body.size()) % 64 != 0)
      std::abort();
    sum = sum + sum_of(piece.metadata) + sum_of(piece.body);
    position += piece.bytes();
  }
  const auto schema = read_schema(frame, *view);
  if (!schema) return;
  const auto layout = make_layout(*schema);
  if (!layout) std::abort();
  std::int64_t rows = 0;
  std::vector<NodeShape> nodes;
  std::vector<BufferPlace> buffers;
  if (!read_batch(*layout, frame, *view, rows, nodes, buffers)) return;
  for (const BufferPlace& buffer : buffers) sum = sum + sum_of(frame.subspan(buffer.offset, buffer.bytes));
  ArrowArray array{};
  export_array(*layout, rows, nodes, buffers, frame.data(), nullptr, &array);
  array.release(&array);
}

// A frame that declares compression is read up to its bodies.
std::vector<std::byte> some_frame(unsigned seed, wire::Compression compression) {
  std::mt19937 random(seed);
  auto pick = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  const auto form = make_template(random_schema(pick), ipc_alignment, compression);
  const RandomBatch batch = BatchMaker((*form)->layout, pick).make(static_cast<std::int64_t>(pick(0, 20)));
  Plan plan;
  if (!make_plan(**form, batch.view, {}, plan)) std::abort();
  std::vector<std::byte> frame(plan.frame_bytes);
  if (!build_frame(**form, plan, frame)) std::abort();
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::vector<std::byte> plain(size);
  if (size > 0) std::memcpy(plain.data(), bytes, size);
  read_all(plain);

  FuzzedDataProvider data(bytes, size);
  const auto seed = data.ConsumeIntegral<std::uint16_t>();
  const auto compression = static_cast<wire::Compression>(seed % wire::compressions);
  std::vector<std::byte> frame = some_frame(seed, compression);
  for (int changes = data.ConsumeIntegralInRange(0, 8); changes > 0; --changes) {
    const auto at = data.ConsumeIntegralInRange<std::size_t>(0, frame.size() - 1);
    frame[at] = static_cast<std::byte>(data.ConsumeIntegral<std::uint8_t>());
  }
  read_all(frame);
  return 0;
}
