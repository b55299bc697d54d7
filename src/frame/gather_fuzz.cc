// Views, runs and unions of a program may say anything. Every buffer here has exactly the bytes that its array's length
// calls for, so the address sanitizer sees each step beyond one. A batch that is counted has to be laid out in the
// memory that was counted, and everything that it shows can be read.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>

#include "frame/gather.h"
#include "testing/frame/arrays.h"

namespace {

using namespace offpath;
using namespace offpath::frame;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
}

class Maker {
 public:
  explicit Maker(FuzzedDataProvider& data) : data_(data) {}

  Field field(int depth) {
    constexpr Type types[] = {Type::int32,      Type::large_utf8, Type::list,       Type::large_list,
                              Type::fixed_list, Type::structure,  Type::dense_union};
    const std::size_t last = depth < 4 ? std::size(types) - 1 : 1;
    Field made{.name = "f", .type = types[data_.ConsumeIntegralInRange<std::size_t>(0, last)]};
    made.view = made.type == Type::large_utf8 || made.type == Type::list || made.type == Type::large_list;
    if (made.type == Type::fixed_list) made.width = data_.ConsumeIntegralInRange(0, 3);
    if (made.type == Type::dense_union) made.type_codes = {0, 7};
    const bool two = made.type == Type::structure || made.type == Type::dense_union;
    const int children = two ? 2 : made.type >= Type::list ? 1 : 0;
    for (int i = 0; i < children; ++i) made.children.push_back(field(depth + 1));
    for (int i = data_.ConsumeIntegralInRange(0, 5); i < 2; ++i)
      made.run_ends.push_back(data_.PickValueInArray<std::uint8_t>({2, 4, 8}));
    return made;
  }

  ArrowArray* array(Field of, std::int64_t length) {
    const std::int64_t offset = data_.ConsumeIntegralInRange(0, 2), values = offset + length;
    if (!of.run_ends.empty()) {
      const std::uint8_t width = of.run_ends[0];
      of.run_ends.erase(of.run_ends.begin());
      const std::int64_t runs = data_.ConsumeIntegralInRange(0, 4);
      ArrowArray* const ends = arrays_.add({runs}, {nullptr, numbers(runs, width, true)});
      // It has no buffers of its own, so it may say that it has any length.
      const std::int64_t said = data_.ConsumeIntegralInRange(0, 4) == 0 ? odd() : length;
      return arrays_.add({said, 0, offset}, {}, {ends, array(std::move(of), runs)});
    }
    const void* const bits = data_.ConsumeBool() ? numbers(values / 8 + 1, 1, false) : nullptr;
    const Arrays::Shape shape{length, bits != nullptr ? -1 : 0, offset};
    switch (of.type) {
      case Type::large_utf8: {
        const std::int64_t count = data_.ConsumeIntegralInRange(0, 20);
        return arrays_.add(shape, {bits, views(values), numbers(count, 1, false), lengths_of(count)});
      }
      case Type::list:
      case Type::large_list: {
        const std::uint8_t width = of.type == Type::list ? 4 : 8;
        ArrowArray* const child = array(of.children[0], data_.ConsumeIntegralInRange(0, 6));
        return arrays_.add(shape, {bits, numbers(values, width, false), numbers(values, width, false)}, {child});
      }
      case Type::fixed_list:
        return arrays_.add(shape, {bits}, {array(of.children[0], values * of.width)});
      case Type::structure:
        return arrays_.add(shape, {bits}, {array(of.children[0], values), array(of.children[1], values)});
      case Type::dense_union:
        return arrays_.add({length, 0, offset}, {codes(values), numbers(values, 4, false)},
                           {array(of.children[0], 3), array(of.children[1], 2)});
      default:
        return arrays_.add(shape, {bits, numbers(values, 4, false)});
    }
  }

  ArrowArray* batch(std::int64_t rows, ArrowArray* column) { return arrays_.batch(rows, {column}); }

 private:
  std::int64_t odd() {
    constexpr std::int64_t edges[] = {-1, 0, 1, 7, 32767, INT32_MAX, std::int64_t{1} << 40, INT64_MAX - 1, INT64_MAX};
    return data_.PickValueInArray(edges);
  }
  std::int64_t number() { return data_.ConsumeIntegralInRange(0, 9) == 0 ? odd() : data_.ConsumeIntegralInRange(0, 5); }

  std::byte* bytes(std::int64_t count) {
    return memory_.emplace_back(new std::byte[static_cast<std::size_t>(count)]()).get();
  }
  void put(std::byte* to, std::int64_t value, std::uint8_t width) { std::memcpy(to, &value, width); }

  std::byte* numbers(std::int64_t count, std::uint8_t width, bool grow) {
    std::byte* const made = bytes(count * width);
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t next = number();
      // Run ends grow, unless one is odd.
      before = grow && before < INT32_MAX && next >= 0 && next < INT32_MAX ? before + next + 1 : next;
      put(made + i * width, before, width);
    }
    return made;
  }
  std::byte* codes(std::int64_t count) {
    std::byte* const made = bytes(count);
    for (std::int64_t i = 0; i < count; ++i)
      put(made + i, data_.ConsumeIntegralInRange(0, 20) == 0 ? number() : data_.ConsumeBool() ? 7 : 0, 1);
    return made;
  }
  std::byte* views(std::int64_t count) {
    std::byte* const made = bytes(count * 16);
    for (std::int64_t i = 0; i < count; ++i) {
      put(made + i * 16, data_.ConsumeBool() ? number() : data_.ConsumeIntegralInRange(12, 17), 4);
      put(made + i * 16 + 8, data_.ConsumeIntegralInRange(0, 9) == 0 ? number() : 0, 4);
      put(made + i * 16 + 12, number(), 4);
    }
    return made;
  }
  std::byte* lengths_of(std::int64_t count) {
    std::byte* const made = bytes(8);
    put(made, count, 8);
    return made;
  }

  FuzzedDataProvider& data_;
  Arrays arrays_;
  std::deque<std::unique_ptr<std::byte[]>> memory_;
};

void read_all(const BatchView& view) {
  volatile std::uint8_t seen = 0;
  for (const BufferSource& buffer : view.buffers)
    for (std::uint64_t i = 0; i < buffer.bytes; ++i) seen = reinterpret_cast<const std::uint8_t*>(buffer.address)[i];
  (void)seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  FuzzedDataProvider data(bytes, count);
  Maker maker(data);
  const Field field = maker.field(0);
  const auto layout = make_layout({.fields = {field}});
  if (!layout) return 0;
  const std::int64_t rows = data.ConsumeIntegralInRange(0, 8);
  const ArrowArray* const batch = maker.batch(rows, maker.array(field, rows));
  BatchView view;
  OwnMemory counted(1 << 20, 1 << 10);
  if (!flatten(*layout, *batch, view, counted)) return 0;
  std::vector<std::byte> memory(counted.bytes());
  OwnMemory own{MutableBytes(memory)};
  const Status laid_out = flatten(*layout, *batch, view, own);
  expect(laid_out.has_value(), laid_out ? "" : laid_out.error().message);
  expect(own.bytes() == counted.bytes(), "the passes differ");
  read_all(view);
  return 0;
}
