// Arbitrary bytes as a parcel: a valid one is read to its end, and given to a member.
#include <cstddef>
#include <cstdint>

#include "exchange/exchange.h"

namespace {

using namespace offpath;
using namespace offpath::exchange;

Exchange make() {
  ExchangeOptions options;
  options.name = "fuzz";
  auto schema = std::make_shared<Schema>();
  schema->name = "fuzz";
  schema->fields = {{"a", FieldType::f64}, {"b", FieldType::u64}};
  options.reductions = {*parse_reduction("top(a, 3)", *schema), *parse_reduction("sum(b)", *schema)};
  options.schema = schema;
  options.grants = GrantOptions{100, second_ns, second_ns};
  std::vector<Place> places;
  for (const char* name : {"a", "b", "c", "d", "e"}) places.push_back({name});
  return Exchange(std::move(options), *Topology::make(*parse_shape("neighbourhoods(2)"), places), 0, 1, second_ns);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Exchange exchange = make();
  auto bytes = std::make_shared<std::vector<std::byte>>(size);
  for (std::size_t i = 0; i < size; ++i) (*bytes)[i] = static_cast<std::byte>(data[i]);
  // Sets values that a fuzzer would not guess: the exchange and the tree.
  if (size >= sizeof(ParcelHeader)) {
    store(bytes->data() + offsetof(ParcelHeader, tag), tag_of("fuzz"));
    store(bytes->data() + offsetof(ParcelHeader, fingerprint), exchange.topology().fingerprint());
  }
  ExchangeEffects effects;
  exchange.begin(2 * second_ns, effects);
  (void)exchange.on_parcel(bytes, 2 * second_ns + 1, effects);
  exchange.on_time(5 * second_ns, effects);
  return 0;
}
