// Ranges in any order, overlapping in any way, compared with a plain model of single bytes.
#include <set>

#include "base/bytes.h"
#include "base/status.h"
#include "tcp/flow/reassembly.h"

using namespace offpath;
using namespace offpath::tcp;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4) return 0;
  const auto* at = reinterpret_cast<const std::byte*>(data);
  const Sequence start(load<std::uint32_t>(at));
  Reassembly reassembly;
  std::set<std::uint32_t> there;  // offsets from start
  std::uint32_t next = 0;
  for (std::size_t i = 4; i + 2 <= size; i += 2) {
    const std::uint32_t begin = next + data[i], end = begin + data[i + 1];
    if (begin > next) {
      if (reassembly.add({start + begin, start + end}))
        for (std::uint32_t byte = begin; byte < end; ++byte) there.insert(byte);
    } else {
      next = bytes_between(start, reassembly.advance(start + end));
      std::uint32_t expected = end;
      while (there.count(expected) != 0) ++expected;
      OFP_ASSERT(next == expected);
      there.erase(there.begin(), there.lower_bound(next));
    }
    std::size_t bytes = 0;
    for (const SequenceRange& range : reassembly.ranges()) {
      OFP_ASSERT(range.begin < range.end && range.begin > start + next);
      bytes += range.bytes();
    }
    OFP_ASSERT(bytes == there.size());
  }
  return 0;
}
