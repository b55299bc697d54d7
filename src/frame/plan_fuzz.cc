// make_plan takes any numbers. First a batch that is sound must give a plan that is, and a frame that
// reads back; then a few numbers are changed at random, and every accepted batch must be sound.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>

#include "frame/parse.h"
#include "frame/plan.h"
#include "testing/frame/random_batches.h"

namespace {

using namespace offpath;
using namespace offpath::frame;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

void check_sound(const Template& form, const RandomBatch& batch) {
  Plan plan;
  const Status planned = make_plan(form, batch.view, {}, plan);
  expect(planned.has_value(), planned ? "" : planned.error().message);
  expect(unsound(form, plan).empty(), unsound(form, plan));
  std::vector<std::byte> frame(plan.frame_bytes);
  const Status built = build_frame(form, plan, frame);
  expect(built.has_value(), built ? "" : built.error().message);
  const Status contents = check_contents(form, plan, frame);
  expect(contents.has_value(), contents ? "" : contents.error().message);
  const auto parsed = parse_frame(frame);
  expect(parsed.has_value(), parsed ? "" : parsed.error().message);
  std::int64_t rows = 0;
  std::vector<NodeShape> nodes;
  std::vector<BufferPlace> buffers;
  const Status read = read_batch(form.layout, frame, *parsed, rows, nodes, buffers);
  expect(read.has_value(), read ? "" : read.error().message);
  expect(rows == plan.rows && nodes == plan.nodes, "the batch read back differs");
}

std::uint64_t odd_number(FuzzedDataProvider& data) {
  constexpr std::uint64_t edges[] = {0,        1,          7,          8,          4095,       4096,
                                     1U << 31, 1ULL << 32, 1ULL << 47, 1ULL << 62, 1ULL << 63, ~0ULL};
  return data.ConsumeBool() ? data.PickValueInArray(edges) : data.ConsumeIntegral<std::uint64_t>();
}

void change_one(BatchView& view, FuzzedDataProvider& data) {
  const auto number = static_cast<std::int64_t>(odd_number(data));
  const int kind = data.ConsumeIntegralInRange(0, 7);
  if (kind == 0) view.rows = number;
  if (kind <= 2 && !view.nodes.empty()) {
    NodeShape& node = view.nodes[data.ConsumeIntegralInRange<std::size_t>(0, view.nodes.size() - 1)];
    (kind == 1 ? node.length : node.null_count) = number;
  }
  if (kind > 2 && !view.buffers.empty()) {
    BufferSource& source = view.buffers[data.ConsumeIntegralInRange<std::size_t>(0, view.buffers.size() - 1)];
    if (kind == 3) source.address = static_cast<std::uint64_t>(number);
    if (kind == 4) source.bytes = static_cast<std::uint64_t>(number);
    if (kind == 5) source.stride_bytes = static_cast<std::uint32_t>(number);
    if (kind == 7) source.memory = static_cast<std::uint32_t>(number);
    if (kind == 6) source.bit_offset = static_cast<std::uint8_t>(number);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  FuzzedDataProvider data(bytes, size);
  auto pick = [&](std::uint64_t low, std::uint64_t high) { return data.ConsumeIntegralInRange(low, high); };
  constexpr std::uint32_t alignments[] = {8, 64, 4096};
  const auto form = make_template(random_schema(pick), data.PickValueInArray(alignments));
  expect(form.has_value(), form ? "" : form.error().message);
  RandomBatch batch = BatchMaker((*form)->layout, pick).make(data.ConsumeIntegralInRange(0, 70));
  check_sound(**form, batch);

  for (int changes = data.ConsumeIntegralInRange(1, 4); changes > 0; --changes) change_one(batch.view, data);
  Plan plan;
  if (!make_plan(**form, batch.view, {}, plan)) return 0;
  expect(unsound(**form, plan).empty(), unsound(**form, plan));
  if (plan.frame_bytes > 1U << 20) return 0;
  std::vector<std::byte> frame(plan.frame_bytes);
  write_head(**form, plan, frame);
  (void)finish(**form, plan, frame);  // without its reads, so offsets may contradict
  (void)parse_frame(frame);
  return 0;
}
