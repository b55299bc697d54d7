// Any text as configuration of exchanges and alarms: shapes, trees in files, reductions, conditions.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "exchange/reduction.h"
#include "exchange/topology.h"
#include "telemetry/alarm.h"

using namespace offpath::exchange;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const Schema schema{"fuzz", {{"a", FieldType::f64}, {"b", FieldType::u64}}};
  static const std::vector<Place> places{{"a"}, {"b"}, {"c"}, {"d"}, {"e"}};
  if (const auto shape = parse_shape(text)) (void)Topology::make(*shape, places);
  if (parse_tree(text)) {
    Shape shape;
    shape.kind = Shape::Kind::file;
    shape.tree = text;
    (void)Topology::make(shape, places);
  }
  (void)parse_reduction(text, schema);
  if (auto rule = parse_alarm(text)) (void)check(*rule);
  return 0;
}
