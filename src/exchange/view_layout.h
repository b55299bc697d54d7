// A view as programs read it: laid out as in wire/areas/exchange_area.h.
#pragma once

#include <cstdint>
#include <vector>

#include "exchange/exchange.h"
#include "wire/areas/exchange_area.h"

namespace offpath::exchange {

// `head` without its counts and its length. Records, and values of figures, that do not fit into `bytes_max` are left
// out, and the flags say so; if not even the rows fit, only the head is left.
[[nodiscard]] std::vector<std::byte> lay_out_view(wire::ViewHead head, const View& view,
                                                  const std::vector<Reduction>& reductions, std::uint64_t bytes_max);

}  // namespace offpath::exchange
