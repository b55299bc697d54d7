// Arbitrary bytes as the outputs of a function that decides: accepted outputs are carried out by a decision.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/files/file_bytes.h"
#include "base/memory_file.h"
#include "exchange/decision/decision.h"

using namespace offpath;
using namespace offpath::exchange;

namespace {

constexpr TimeNs now = 100 * second_ns;
const char* const names[] = {"record", "grants", "settings", "other"};

DecisionSettings settings() {
  return {"a", "b", "", {{3, "cpu", 100, 2000, 10 * second_ns}, {5, "io", 1, 9, 10 * second_ns}}};
}

}  // namespace

// Outputs one after the other: a byte for the name, one for the length, and the content.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  plugin::Outputs outputs;
  while (size >= 2 && outputs.size() < 4) {
    plugin::Output& each = outputs.emplace_back();
    each.name = names[data[0] % std::size(names)];
    each.bytes = std::min<std::size_t>(data[1], size - 2);
    each.memory = *memory_file("fuzz");
    if (!write_all(each.memory.get(), std::as_bytes(std::span(data + 2, each.bytes)), 0)) abort();
    data += 2 + each.bytes;
    size -= 2 + each.bytes;
  }
  Decision decision(settings());
  const auto answer = read_answer(outputs, 3, 64, decision.settings().actuators);
  if (!answer) return 0;
  auto step = decision.on_answer(*answer, now);
  for (int stage = 0; stage < 2 && !step.asked.empty(); ++stage) {
    Decision::Step next;
    for (const Decision::Asked& each : step.asked) {
      if (each.until < 0 || each.until > now + 10 * second_ns) abort();
      next = decision.on_set(each.number, each.value);
    }
    step = std::move(next);
  }
  if (!decision.is_idle()) abort();
  return 0;
}
