#include "md/offloaded.h"

#include "md/bad_input.h"

namespace md {

void check_list(const ForceArguments& arguments, const PairList& list) {
  if (list.begin[0] != 0 || list.begin[arguments.own] + 16 > arguments.neighbours) throw BadInput("a list cut short");
  for (std::size_t i = 0; i < arguments.own; ++i) {
    const std::uint64_t begin = list.begin[i], end = list.begin[i + 1];
    if (begin > end || list.mutual[i] < 0 || static_cast<std::uint64_t>(list.mutual[i]) > end - begin) throw BadInput("a list out of order");
    for (std::uint64_t k = begin; k < end; ++k) {
      const auto j = static_cast<std::uint64_t>(list.neighbours[k]);
      const bool mutual = k - begin < static_cast<std::uint64_t>(list.mutual[i]);
      if (list.neighbours[k] < 0 || j >= (mutual ? arguments.own : arguments.all)) throw BadInput("a neighbour that is not there");
    }
  }
  for (std::uint64_t k = list.begin[arguments.own]; k < list.begin[arguments.own] + 16; ++k) {
    if (list.neighbours[k] < 0 || static_cast<std::uint64_t>(list.neighbours[k]) >= arguments.all) throw BadInput("a neighbour that is not there");
  }
}

}  // namespace md
